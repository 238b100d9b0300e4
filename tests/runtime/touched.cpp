// Runs a step over each of two patterns and compares.
#include "touched.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/runtime/arena.h"

namespace fpdt {
namespace {

constexpr std::byte kPattern{0x5a};
constexpr std::byte kComplement{0xa5};

ByteRanges complement(const ByteRanges& ranges, std::int64_t end) {
  return without({{0, end}}, ranges);
}

// "byte 17 of kv[1]", or a place between the buffers.
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

// Which bytes of an arena are written, are scratch (whose contents do not matter), and are set
// before the step (states and inputs, which the pattern does not fill).
struct Expected {
  ByteRanges written;
  ByteRanges scratch;
  ByteRanges set;
};

Account compare(const Schedule& schedule, MemorySpace space, const Remains& remains,
                const Expected& bytes) {
  Account account{space, {}, {}, {}};
  const auto note = [&](std::int64_t offset, std::string_view what) {
    if (!account.difference.empty()) return;
    account.difference = fmt::format("{} {}", describe(schedule, space, offset), what);
  };
  const auto end = std::ssize(remains.first);
  std::vector<bool> free(static_cast<std::size_t>(end), true);
  for (const ByteRange& range : bytes.set) {
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
  visit(without(bytes.written, bytes.scratch), true);
  visit(without(complement(bytes.written, end), bytes.scratch), false);
  return account;
}

}  // namespace

std::vector<Account> account_touched(Executor& executor, std::span<const Call> calls,
                                     const std::function<void()>& reset) {
  const auto run_over = [&](std::byte pattern) {
    for (const MemorySpace space : kMemorySpaces) executor.fill(space, pattern);
    reset();
    executor.run(calls);
  };
  run_over(kPattern);
  std::vector<std::vector<std::byte>> first;
  for (const MemorySpace space : kMemorySpaces) first.push_back(executor.contents(space));
  run_over(kComplement);
  std::vector<Account> accounts;
  for (std::size_t i = 0; i < kMemorySpaces.size(); ++i) {
    const MemorySpace space = kMemorySpaces[i];
    const Expected bytes{written_bytes(executor.program(), calls, space),
                         scratch_bytes(executor.program(), calls, space),
                         filled_bytes(executor.schedule(), space)};
    const std::vector<std::byte> second = executor.contents(space);
    accounts.push_back(compare(executor.schedule(), space, {first[i], second}, bytes));
  }
  return accounts;
}

}  // namespace fpdt
