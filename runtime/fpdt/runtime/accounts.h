// Accounts of bytes that can disagree with the plan: what a step changed, what was live, what is
// resident.
//
// Resident: after a step in an arena that was neither populated nor filled with a pattern, the
// pages that the operating system holds are those of written operands, states and inputs; pages of
// scratch operands alone do not count.
//
// Counted: where memory is not paged on demand, the backend counts the words that nobody has
// written since it was prepared (a GPU poisons its arena and counts by a kernel). Written operands,
// states and inputs must all have changed, and nothing between operands may have. So of an arena
// touched + unused scratch + between = all of it, with nothing taken from the schedule's word.
//
// Live in real time is part of a Trace (runtime/recorder.h); find_overrun compares it with the
// arena.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fpdt/runtime/executor.h"
#include "fpdt/trace/trace.h"

namespace fpdt {

// Bytes [begin, end) of an arena.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

// Sorted, disjoint, not adjacent.
using ByteRanges = std::vector<ByteRange>;
ByteRanges merged(std::vector<ByteRange> ranges);
// What of `ranges` is not in `removed`.
ByteRanges without(const ByteRanges& ranges, const ByteRanges& removed);
Bytes total(const ByteRanges& ranges);
// Every range widened to whole pages, or to other units.
ByteRanges whole_pages(const ByteRanges& ranges);
ByteRanges widened(const ByteRanges& ranges, std::int64_t unit);

// Union of the operands that the calls write or accumulate into.
ByteRanges written_bytes(const Program& program, std::span<const Call> calls, MemorySpace space);
// Of those that they use as scratch.
ByteRanges scratch_bytes(const Program& program, std::span<const Call> calls, MemorySpace space);
// All slots of states and inputs, which the trainer fills.
ByteRanges filled_bytes(const Schedule& schedule, MemorySpace space);

// One space: what the schedule says, what was found, and how they differ ("" when they agree).
struct Account {
  MemorySpace space = MemorySpace::device;
  Bytes expected;
  Bytes found;
  std::string difference;
};

// After the first step of a fresh executor whose states and inputs were set. Where memory is not
// paged on demand, of host memory the whole arena must be resident; of a device nothing follows.
std::vector<Account> account_resident(const Executor& executor, std::span<const Call> calls);

struct TouchedCount {
  Bytes touched;                  // words that changed
  Bytes unused_scratch, between;  // of operands that are scratch alone, and of none: did not
  std::string difference;         // from the schedule; "" when there is none
};

// After the first step of a fresh executor whose states and inputs were set; nothing where the
// backend does not count.
std::optional<TouchedCount> count_touched(const Executor& executor, std::span<const Call> calls,
                                          MemorySpace space);

// Where live bytes exceed the arena; "" when nowhere.
std::string find_overrun(const Trace& trace);

}  // namespace fpdt
