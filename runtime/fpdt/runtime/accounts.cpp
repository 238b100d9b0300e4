// Sets of byte ranges, and the checks that compare them with the plan.
#include "fpdt/runtime/accounts.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/resolve.h"

namespace fpdt {
namespace {

ByteRanges complement(const ByteRanges& ranges, std::int64_t end) {
  return without({{0, end}}, ranges);
}

// Operands that the calls use with one of these accesses.
ByteRanges used_bytes(const Program& program, std::span<const Call> calls, MemorySpace space,
                      std::initializer_list<Access> accesses) {
  using Part =
      std::tuple<BufferIndex, std::int64_t, std::int64_t, std::int64_t>;  // slot, row, rows
  std::set<Part> parts;
  Expansion expansion(program);
  for (const Call& call : calls) {
    expansion.begin(call);
    for (const PlainOp& op : program.blocks[static_cast<std::size_t>(call.block)].ops) {
      for (const PlainUse& use : op.uses) {
        const Buffer& buffer = program.schedule->buffers[static_cast<std::size_t>(use.buffer)];
        if (buffer.space != space) continue;
        if (std::find(accesses.begin(), accesses.end(), use.access) == accesses.end()) continue;
        parts.emplace(use.buffer, expansion.version(use) % buffer.slots, use.row_first, use.rows);
      }
    }
  }
  std::vector<ByteRange> ranges;
  for (const auto& [index, slot, row, rows] : parts) {
    const Buffer& buffer = program.schedule->buffers[static_cast<std::size_t>(index)];
    const std::int64_t begin =
        buffer.offset + slot * buffer.slot_stride().value + row * buffer.row_bytes();
    ranges.push_back({begin, begin + rows * buffer.row_bytes()});
  }
  return merged(std::move(ranges));
}

// Bytes that the step or the trainer writes.
ByteRanges touched_bytes(const Executor& executor, std::span<const Call> calls, MemorySpace space) {
  std::vector<ByteRange> touched = written_bytes(executor.program(), calls, space);
  const ByteRanges filled = filled_bytes(executor.schedule(), space);
  touched.insert(touched.end(), filled.begin(), filled.end());
  return merged(std::move(touched));
}

}  // namespace

ByteRanges merged(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  ByteRanges all;
  for (const ByteRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!all.empty() && range.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

ByteRanges without(const ByteRanges& ranges, const ByteRanges& removed) {
  ByteRanges rest;
  auto gap = removed.begin();
  for (const ByteRange& range : ranges) {
    std::int64_t at = range.begin;
    while (gap != removed.end() && gap->end <= at) ++gap;
    for (auto next = gap; next != removed.end() && next->begin < range.end; ++next) {
      if (at < next->begin) rest.push_back({at, next->begin});
      at = next->end;
    }
    if (at < range.end) rest.push_back({at, range.end});
  }
  return rest;
}

Bytes total(const ByteRanges& ranges) {
  Bytes sum;
  for (const ByteRange& range : ranges) sum += Bytes{range.end - range.begin};
  return sum;
}

ByteRanges whole_pages(const ByteRanges& ranges) { return widened(ranges, page_bytes().value); }

ByteRanges widened(const ByteRanges& ranges, std::int64_t unit) {
  std::vector<ByteRange> wide;
  for (const ByteRange& range : ranges) {
    wide.push_back({range.begin / unit * unit, round_up(range.end, unit)});
  }
  return merged(std::move(wide));
}

ByteRanges written_bytes(const Program& program, std::span<const Call> calls, MemorySpace space) {
  return used_bytes(program, calls, space, {Access::write, Access::accumulate});
}

ByteRanges scratch_bytes(const Program& program, std::span<const Call> calls, MemorySpace space) {
  return used_bytes(program, calls, space, {Access::scratch});
}

ByteRanges filled_bytes(const Schedule& schedule, MemorySpace space) {
  std::vector<ByteRange> ranges;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != space) continue;
    if (buffer.role != Role::state && buffer.role != Role::input) continue;
    for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
      const std::int64_t begin = buffer.offset + slot * buffer.slot_stride().value;
      ranges.push_back({begin, begin + buffer.slot_bytes().value});
    }
  }
  return merged(std::move(ranges));
}

std::vector<Account> account_resident(const Executor& executor, std::span<const Call> calls) {
  std::vector<Account> accounts;
  for (const MemorySpace space : kMemorySpaces) {
    const ByteRanges pages = whole_pages(touched_bytes(executor, calls, space));
    const std::span<const std::byte> arena = executor.arena(space);
    if (!executor.demand_paged()) {
      Account account{space, total(pages), Bytes{std::ssize(arena)}, {}};
      if (space != MemorySpace::device) account.found = resident_bytes(arena);
      if (account.found != Bytes{std::ssize(arena)}) {
        account.difference =
            fmt::format("{} of {} is resident, but all of it should be pinned",
                        format_bytes(account.found), format_bytes(Bytes{std::ssize(arena)}));
      }
      accounts.push_back(std::move(account));
      continue;
    }
    Account account{space, total(pages), resident_bytes(arena), {}};
    const ByteRanges scratch = whole_pages(scratch_bytes(executor.program(), calls, space));
    for (const ByteRange& page : without(scratch, pages)) {
      const auto first = static_cast<std::size_t>(page.begin);
      const auto size = static_cast<std::size_t>(page.end - page.begin);
      account.found = account.found - resident_bytes(arena.subspan(first, size));
    }
    if (account.found != account.expected) {
      account.difference = fmt::format("{} is resident, {} was touched",
                                       format_bytes(account.found), format_bytes(account.expected));
    }
    accounts.push_back(std::move(account));
  }
  return accounts;
}

std::optional<TouchedCount> count_touched(const Executor& executor, std::span<const Call> calls,
                                          MemorySpace space) {
  constexpr std::int64_t kWord = 4;
  const std::span<const std::byte> arena = executor.arena(space);
  if (!executor.untouched(arena.first(0))) return {};
  const auto left = [&](const ByteRanges& ranges) {
    Bytes sum;
    for (const ByteRange& range : ranges) {
      const auto first = static_cast<std::size_t>(range.begin);
      const auto size = static_cast<std::size_t>(range.end - range.begin);
      sum += executor.untouched(arena.subspan(first, size)).value_or(Bytes{});
    }
    return sum;
  };
  const ByteRanges scheduled = widened(touched_bytes(executor, calls, space), kWord);
  const ByteRanges scratch =
      without(widened(scratch_bytes(executor.program(), calls, space), kWord), scheduled);
  std::vector<ByteRange> operands = scheduled;
  operands.insert(operands.end(), scratch.begin(), scratch.end());
  const ByteRanges others = complement(merged(std::move(operands)), std::ssize(arena));
  const Bytes missed = left(scheduled);
  TouchedCount count{{}, left(scratch), left(others), {}};
  count.touched = Bytes{std::ssize(arena)} - missed - count.unused_scratch - count.between;
  if (missed.value > 0) {
    count.difference =
        fmt::format("{} that the schedule writes was not written", format_bytes(missed));
  } else if (const Bytes strayed = total(others) - count.between; strayed.value > 0) {
    count.difference = fmt::format("{} outside every operand was written", format_bytes(strayed));
  }
  return count;
}

std::string find_overrun(const Trace& trace) {
  for (const LiveCurve& curve : trace.memory) {
    if (const Bytes most = peak(curve); most > curve.arena) {
      return fmt::format("{} is live in {}, but its arena has {}", format_bytes(most), curve.space,
                         format_bytes(curve.arena));
    }
  }
  return "";
}

}  // namespace fpdt
