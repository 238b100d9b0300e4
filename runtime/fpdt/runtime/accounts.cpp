// Ranges of bytes, and what became of them.
#include "fpdt/runtime/accounts.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/resolve.h"

namespace fpdt {
namespace {

constexpr std::byte kPattern{0x5a};
constexpr std::byte kComplement{0xa5};

ByteRanges complement(const ByteRanges& ranges, std::int64_t end) {
  ByteRanges rest;
  std::int64_t at = 0;
  for (const ByteRange& range : ranges) {
    if (at < range.begin) rest.push_back({at, range.begin});
    at = range.end;
  }
  if (at < end) rest.push_back({at, end});
  return rest;
}

// "byte 17 of kv[1]", or where between the buffers.
std::string describe(const Schedule& schedule, MemorySpace space, std::int64_t offset) {
  for (const Buffer& buffer : schedule.buffers) {
    const std::int64_t inside = offset - buffer.offset;
    if (buffer.space != space || inside < 0 || inside >= buffer.bytes().value) continue;
    const std::int64_t stride = buffer.slot_stride().value;
    return fmt::format("byte {} of {}, slot {}", inside % stride, buffer.name, inside / stride);
  }
  return fmt::format("byte {} of the arena, outside of every buffer", offset);
}

// The arena of one space after a step over each pattern.
struct Remains {
  std::span<const std::byte> first;
  std::span<const std::byte> second;

  [[nodiscard]] bool changed(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return first[at] != kPattern || second[at] != kComplement;
  }
  [[nodiscard]] bool equal(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return first[at] == second[at];
  }
};

// `set` are states and inputs: their old contents are no pattern.
Account compare(const Schedule& schedule, MemorySpace space, const Remains& remains,
                const ByteRanges& written, const ByteRanges& set) {
  Account account{space, {}, {}, {}};
  const auto note = [&](std::int64_t offset, std::string_view what) {
    if (!account.difference.empty()) return;
    account.difference = fmt::format("{} {}", describe(schedule, space, offset), what);
  };
  const auto end = std::ssize(remains.first);
  std::vector<bool> free(static_cast<std::size_t>(end), true);
  for (const ByteRange& range : set) {
    std::fill(free.begin() + range.begin, free.begin() + range.end, false);
  }
  const auto visit = [&](const ByteRanges& ranges, bool expected) {
    for (const ByteRange& range : ranges) {
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        if (expected && !remains.equal(i)) note(i, "depends on memory that nobody wrote");
        if (!free[static_cast<std::size_t>(i)]) continue;
        const bool changed = remains.changed(i);
        if (expected) account.expected += Bytes{1};
        if (changed) account.found += Bytes{1};
        if (changed != expected) {
          note(i, expected ? "was not written" : "was written and is no operand");
        }
      }
    }
  };
  visit(written, true);
  visit(complement(written, end), false);
  return account;
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

Bytes total(const ByteRanges& ranges) {
  Bytes sum;
  for (const ByteRange& range : ranges) sum += Bytes{range.end - range.begin};
  return sum;
}

ByteRanges whole_pages(const ByteRanges& ranges) {
  const std::int64_t page = page_bytes().value;
  std::vector<ByteRange> pages;
  for (const ByteRange& range : ranges) {
    pages.push_back({range.begin / page * page, round_up(range.end, page)});
  }
  return merged(std::move(pages));
}

ByteRanges written_bytes(const Program& program, std::span<const Call> calls, MemorySpace space) {
  using Part =
      std::tuple<BufferIndex, std::int64_t, std::int64_t, std::int64_t>;  // slot, row, rows
  std::set<Part> parts;
  Expansion expansion(program);
  for (const Call& call : calls) {
    expansion.begin(call);
    for (const PlainOp& op : program.blocks[static_cast<std::size_t>(call.block)].ops) {
      for (const PlainUse& use : op.uses) {
        const Buffer& buffer = program.schedule->buffers[static_cast<std::size_t>(use.buffer)];
        if (buffer.space != space || use.access == Access::read) continue;
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

std::vector<Account> account_touched(Executor& executor, std::span<const Call> calls,
                                     const std::function<void()>& reset) {
  const auto run_over = [&](std::byte pattern) {
    for (const MemorySpace space : kMemorySpaces) {
      const std::span<std::byte> arena = executor.arena(space);
      std::fill(arena.begin(), arena.end(), pattern);
    }
    reset();
    executor.run(calls);
  };
  run_over(kPattern);
  std::vector<std::vector<std::byte>> first;
  for (const MemorySpace space : kMemorySpaces) {
    const std::span<std::byte> arena = executor.arena(space);
    first.emplace_back(arena.begin(), arena.end());
  }
  run_over(kComplement);
  std::vector<Account> accounts;
  for (std::size_t i = 0; i < kMemorySpaces.size(); ++i) {
    const MemorySpace space = kMemorySpaces[i];
    accounts.push_back(compare(executor.schedule(), space, {first[i], executor.arena(space)},
                               written_bytes(executor.program(), calls, space),
                               filled_bytes(executor.schedule(), space)));
  }
  return accounts;
}

std::vector<Account> account_resident(const Executor& executor, std::span<const Call> calls) {
  std::vector<Account> accounts;
  for (const MemorySpace space : kMemorySpaces) {
    std::vector<ByteRange> touched = written_bytes(executor.program(), calls, space);
    const ByteRanges filled = filled_bytes(executor.schedule(), space);
    touched.insert(touched.end(), filled.begin(), filled.end());
    Account account{space,
                    total(whole_pages(merged(std::move(touched)))),
                    resident_bytes(executor.arena(space)),
                    {}};
    if (account.found != account.expected) {
      account.difference = fmt::format("{} are resident, {} were touched",
                                       format_bytes(account.found), format_bytes(account.expected));
    }
    accounts.push_back(std::move(account));
  }
  return accounts;
}

std::string find_overrun(const Trace& trace) {
  for (const LiveCurve& curve : trace.memory) {
    if (const Bytes most = peak(curve); most > curve.arena) {
      return fmt::format("{} live in {}, whose arena has {}", format_bytes(most), curve.space,
                         format_bytes(curve.arena));
    }
  }
  return "";
}

}  // namespace fpdt
