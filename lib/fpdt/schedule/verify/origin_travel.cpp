// The rules of collectives: what rows hold after they travelled.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/schedule/verify/origin_rules.h"

namespace fpdt {
namespace {

// The K blocks of what is sent, as lists.
std::vector<OriginRuns> blocks_of(const OriginRuns& send, std::int64_t members) {
  const std::int64_t rows = count_rows(send) / members;
  std::vector<OriginRuns> blocks;
  for (std::int64_t i = 0; i < members; ++i) blocks.push_back(slice(send, i * rows, rows));
  return blocks;
}

// Whether something is known of all blocks, and is of one kind.
bool alike(const std::vector<OriginRun>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const OriginRun& one) {
    return one.known && one.tiles == blocks[0].tiles;
  });
}

std::vector<RankValue> each(const std::vector<OriginRun>& runs, RankValue OriginRun::*value) {
  std::vector<RankValue> values;
  for (const OriginRun& run : runs) values.push_back(run.*value);
  return values;
}

}  // namespace

template <class Collective, class Received>
void OriginRules::each_pair(const Collective& op, Received&& received) {
  const Group& group = group_named(schedule_, op.group);
  for (std::size_t i = 0; i < op.send.size(); ++i) {
    const Operand& send = op.send[i];
    const std::int64_t width = store_.buffer(send.buffer).row_elements();
    const OriginRuns runs = store_.read(send);
    if (runs.size() == 1 && !runs[0].known) {
      write_unknown(op.receive[i]);
    } else {
      write(op.receive[i], received(runs, send, group), width);
    }
  }
}

template <class Collective>
void OriginRules::require_same_parts(const Collective& op) {
  const Group& group = group_named(schedule_, op.group);
  for (const Operand& send : op.send) {
    const OriginCuts::Cut& cut = cuts_.of(send.buffer);
    if (cut.axis < 0 || values_.same_within(cut.part, group)) continue;
    fail("S702", fmt::format("the ranks of group {} have different parts of {}", group.name,
                             store_.buffer(send.buffer).name));
  }
}

void OriginRules::rule(const AllToAll& op) {
  each_pair(op, [this](const OriginRuns& send, const Operand&, const Group& group) {
    std::vector<OriginRuns> from(index(group.size));
    each_stretch(blocks_of(send, group.size), [&](std::int64_t, const auto& blocks) {
      OriginRun run{.rows = blocks[0].rows};
      if (!alike(blocks)) {
        for (OriginRuns& one : from) append(one, run);
        return;
      }
      run.known = true;
      run.tiles = blocks[0].tiles;
      const auto token = values_.dealt(each(blocks, &OriginRun::token), group);
      const auto part = values_.dealt(each(blocks, &OriginRun::part), group);
      const auto sum = values_.dealt(each(blocks, &OriginRun::sum), group);
      for (std::size_t i = 0; i < from.size(); ++i) {
        run.token = token[i];
        run.part = part[i];
        run.sum = sum[i];
        append(from[i], run);
      }
    });
    OriginRuns all;
    for (const OriginRuns& one : from) {
      for (const OriginRun& run : one) append(all, run);
    }
    return all;
  });
}

void OriginRules::rule(const AllGather& op) {
  require_same_parts(op);
  each_pair(op, [this](const OriginRuns& send, const Operand&, const Group& group) {
    OriginRuns all;
    for (std::int64_t member = 0; member < group.size; ++member) {
      for (OriginRun run : send) {
        run.token = values_.of_member(run.token, group, member);
        run.part = values_.of_member(run.part, group, member);
        run.sum = values_.of_member(run.sum, group, member);
        append(all, run);
      }
    }
    return all;
  });
}

void OriginRules::rule(const Exchange& op) {
  each_pair(op, [this, hop = op.hop](OriginRuns runs, const Operand&, const Group& group) {
    for (OriginRun& run : runs) {
      run.token = values_.of_source(run.token, group, hop);
      run.part = values_.of_source(run.part, group, hop);
      run.sum = values_.of_source(run.sum, group, hop);
    }
    return runs;
  });
}

// The sum over a group of what its members send, which must be of the same tokens.
OriginRun OriginRules::summed(OriginRun run, const Operand& send, const Group& group) {
  if (!run.known) return run;
  if (!values_.same_within(run.token, group) || !values_.same_within(run.part, group)) {
    fail("S702", fmt::format("adds rows of {} that hold different tokens on the ranks of a group",
                             store_.buffer(send.buffer).name));
    return {.rows = run.rows};
  }
  run.sum = values_.of_all(run.sum, group);
  return run;
}

void OriginRules::rule(const AllReduce& op) {
  each_pair(op, [this](OriginRuns runs, const Operand& send, const Group& group) {
    for (OriginRun& run : runs) run = summed(run, send, group);
    return runs;
  });
}

void OriginRules::rule(const ReduceScatter& op) {
  require_same_parts(op);
  each_pair(op, [this](const OriginRuns& send, const Operand& operand, const Group& group) {
    OriginRuns own;
    each_stretch(blocks_of(send, group.size), [&](std::int64_t, auto blocks) {
      OriginRun run{.rows = blocks[0].rows};
      for (OriginRun& block : blocks) block = summed(block, operand, group);
      if (alike(blocks)) {
        run.known = true;
        run.tiles = blocks[0].tiles;
        run.token = values_.chosen(each(blocks, &OriginRun::token), group);
        run.part = values_.chosen(each(blocks, &OriginRun::part), group);
        run.sum = values_.chosen(each(blocks, &OriginRun::sum), group);
      }
      append(own, run);
    });
    return own;
  });
}

}  // namespace fpdt
