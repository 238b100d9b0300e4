// Random small schedules. `depend` makes them safe, every edge that it makes is needed, and the
// verifier agrees with a brute-force happens-before check on every subset of edges that it gets.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using test::Tiny;

// One block of fills and copies between rings is called several times. Every read finds its version
// in issue order. A second block reads the last versions of the first.
class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  Schedule schedule() {
    Tiny tiny;
    for (int buffer = 0; buffer < 3; ++buffer) {
      slots_[buffer] = pick(1, 3);
      tiny.buffer(std::string(1, static_cast<char>('a' + buffer)), slots_[buffer]);
    }
    tiny.block("one");
    const int ops = pick(4, 12);
    for (int i = 0; i < ops; ++i) op(tiny, i);
    for (int buffer = 0; buffer < 3; ++buffer) {
      tiny.schedule.blocks[0].advance.push_back({buffer, newest_[buffer] + 1});
    }
    tiny.buffer("sink").block("two", {{3, 1}});
    for (int buffer = 0; buffer < 3 && newest_[buffer] >= 0; ++buffer) {
      tiny.copy("last." + std::to_string(buffer), pick(0, 2), name(buffer, -1) + rows(buffer),
                "sink[+0]" + rows(buffer));
      break;
    }
    const int calls = pick(2, 4);
    for (int i = 0; i < calls; ++i) {
      tiny.call("one", i);
      if (pick(0, 1) == 1 && !tiny.schedule.blocks[1].ops.empty()) tiny.call("two", i);
    }
    return tiny.schedule;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  static std::string name(int buffer, std::int64_t version) {
    return std::string(1, static_cast<char>('a' + buffer)) + "[" + (version < 0 ? "" : "+") +
           std::to_string(version) + "]";
  }
  static std::string rows(int) { return " rows 1:3"; }

  void op(Tiny& tiny, int i) {
    const int target = pick(0, 2);
    const int lane = pick(0, 2);
    const std::string op_name = "op." + std::to_string(i);
    const int source = pick(0, 2);
    const bool can_read = source != target && newest_[source] >= 0;
    const bool accumulates = can_read && newest_[target] >= 0 && !read_[target] && pick(0, 1) == 1;
    if (!accumulates) {
      ++newest_[target];
      read_[target] = false;
    }
    const std::string to = name(target, newest_[target]);
    if (accumulates) {
      tiny.copy(op_name, lane, name(source, newest_[source]) + rows(source),
                to + rows(target) + " +=");
    } else if (can_read && pick(0, 2) > 0) {
      const std::int64_t back =
          pick(0, std::min<int>(slots_[source] - 1, static_cast<int>(newest_[source])));
      tiny.copy(op_name, lane, name(source, newest_[source] - back), to);
    } else {
      tiny.fill(op_name, lane, to + " rows 0:2").fill(op_name + "b", pick(0, 2), to + " rows 2:4");
      return;
    }
    read_[source] = true;
  }

  std::mt19937 random_;
  int slots_[3] = {};
  std::int64_t newest_[3] = {-1, -1, -1};
  bool read_[3] = {};
};

struct Touch {
  std::size_t op;
  std::int64_t buffer, slot, version, first, end;
  bool writes;
};

// Computes happens-before as a closure over all ops of the step. Every two conflicting accesses
// must be ordered.
bool ordered_by_brute_force(const Schedule& schedule) {
  const Program program(schedule);
  Expansion expansion(program);
  std::vector<std::vector<bool>> before;  // [op][earlier op]
  std::vector<std::pair<std::int32_t, LanePosition>> place;
  std::vector<Touch> touches;
  for (const Call& call : schedule.train) {
    expansion.begin(call);
    for (const PlainOp& op : program.blocks[static_cast<std::size_t>(call.block)].ops) {
      const std::size_t number = before.size();
      before.emplace_back(number, false);
      place.emplace_back(op.lane, expansion.position(op));
      std::vector<std::pair<std::int32_t, LanePosition>> awaited{
          {op.lane, expansion.position(op) - 1}};
      for (const After& after : op.after) {
        const auto& awaited_op = program.blocks[static_cast<std::size_t>(after.block)]
                                     .ops[static_cast<std::size_t>(after.op)];
        awaited.emplace_back(awaited_op.lane, expansion.position(after));
      }
      for (std::size_t other = 0; other < number; ++other) {
        if (std::find(awaited.begin(), awaited.end(), place[other]) == awaited.end()) continue;
        before[number][other] = true;
        for (std::size_t i = 0; i < other; ++i) {
          if (before[other][i]) before[number][i] = true;
        }
      }
      for (const PlainUse& use : op.uses) {
        const std::int64_t version = expansion.version(use);
        const std::int64_t slots = schedule.buffers[static_cast<std::size_t>(use.buffer)].slots;
        touches.push_back({number, use.buffer, version % slots, version, use.row_first,
                           use.row_first + use.rows, use.access != Access::read});
      }
    }
  }
  for (const Touch& late : touches) {
    for (const Touch& early : touches) {
      if (early.op >= late.op || early.buffer != late.buffer || early.slot != late.slot) continue;
      const bool same = early.version == late.version;
      const bool meet = early.first < late.end && late.first < early.end;
      if (same && !(meet && (early.writes || late.writes))) continue;
      if (!before[late.op][early.op]) return false;
    }
  }
  return true;
}

TEST(Property, DependMakesSchedulesSafeWithNeededEdges) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Schedule schedule = Generator(seed).schedule();
    depend(schedule);
    ASSERT_EQ(format_diagnostics(verify(schedule)), "") << "seed " << seed;
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        const std::vector<After> whole = op.after;
        for (std::size_t i = 0; i < whole.size(); ++i) {
          op.after.erase(op.after.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_FALSE(verify(schedule).empty())
              << "seed " << seed << ": " << op.name << " edge " << i;
          op.after = whole;
        }
      }
    }
  }
}

TEST(Property, VerifierAgreesWithBruteForce) {
  std::mt19937 random(7);
  int safe = 0;
  int unsafe = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    Schedule schedule = Generator(seed).schedule();
    depend(schedule);
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        const auto drop = [&random](const After&) { return random() % 16 == 0; };
        op.after.erase(std::remove_if(op.after.begin(), op.after.end(), drop), op.after.end());
      }
    }
    const bool expected = ordered_by_brute_force(schedule);
    EXPECT_EQ(verify(schedule).empty(), expected) << "seed " << seed;
    ++(expected ? safe : unsafe);
  }
  EXPECT_GT(safe, 100);
  EXPECT_GT(unsafe, 100);
}

}  // namespace
}  // namespace fpdt
