// Compares measured memory with the plan: bytes that a step changed, and bytes that are resident.
//
// Resident: take an arena that was neither populated nor filled with a pattern. After a step, the
// operating system holds exactly the pages of written operands, states and inputs. Pages that hold
// only scratch operands do not count.
//
// Touched: where memory is not paged on demand, the backend counts the words that have not been
// written since the arena was prepared. (A GPU poisons its arena and counts with a kernel.) Written
// operands, states and inputs must all have changed, and nothing between operands may have. So
// touched + unused scratch + between must add up to the whole arena, and this check does not trust
// the schedule.
//
// Live bytes over time are part of a Trace (runtime/recorder.h); find_overrun compares them with
// the arena.
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
// The bytes of `ranges` that are not in `removed`.
ByteRanges without(const ByteRanges& ranges, const ByteRanges& removed);
Bytes total(const ByteRanges& ranges);
// Widens every range to whole pages, or to multiples of `unit` bytes.
ByteRanges whole_pages(const ByteRanges& ranges);
ByteRanges widened(const ByteRanges& ranges, std::int64_t unit);

// Union of the operands that the calls write or accumulate into.
ByteRanges written_bytes(const Program& program, std::span<const Call> calls, MemorySpace space);
// Union of the operands that the calls use as scratch.
ByteRanges scratch_bytes(const Program& program, std::span<const Call> calls, MemorySpace space);
// All slots of states and inputs. The trainer fills these.
ByteRanges filled_bytes(const Schedule& schedule, MemorySpace space);

// One memory space: what the schedule expects, what was measured, and the difference ("" if none).
struct Account {
  MemorySpace space = MemorySpace::device;
  Bytes expected;
  Bytes found;
  std::string difference;
};

// Call it after the first step of a fresh executor whose states and inputs were set. Where memory
// is not paged on demand, the whole host arena must be resident, and device memory is not checked.
std::vector<Account> account_resident(const Executor& executor, std::span<const Call> calls);

struct TouchedCount {
  Bytes touched;                  // words that changed
  Bytes unused_scratch, between;  // only scratch; no operand: both unchanged
  std::string difference;         // from the schedule; "" if there is none
};

// Call it after the first step of a fresh executor whose states and inputs were set. Returns
// nothing if the backend does not count.
std::optional<TouchedCount> count_touched(const Executor& executor, std::span<const Call> calls,
                                          MemorySpace space);

// Where live bytes exceed the arena; "" if nowhere.
std::string find_overrun(const Trace& trace);

}  // namespace fpdt
