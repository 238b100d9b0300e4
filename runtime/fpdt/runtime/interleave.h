// Runs all ranks and lanes of a schedule in one thread, in an order drawn by a seed.
//
// Each time it picks one of the ops that may run: the op is next on its lane, and the ops in its
// `after` are complete. A collective runs when it may run on every member of its group. If the
// edges of a schedule suffice, every seed gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/resolve.h"
#include "fpdt/schedule/verify.h"

namespace fpdt {

class Interleaver {
 public:
  // Runs an op that is not a collective.
  using Run = std::function<void(std::int64_t rank, const Op& op, std::span<const View> views)>;

  // The schedule must outlive the interleaver.
  Interleaver(const VerifiedSchedule& schedule, Run run);
  Interleaver(const Interleaver&) = delete;
  Interleaver& operator=(const Interleaver&) = delete;

  [[nodiscard]] std::span<std::byte> slot(std::int64_t rank, BufferIndex buffer,
                                          std::int64_t slot) const {
    return ranks_.at(static_cast<std::size_t>(rank)).addresses.slot(buffer, slot);
  }

  void run(std::span<const Call> calls, std::uint64_t seed);

 private:
  struct Rank {
    std::array<Reservation, kMemorySpaces.size()> reservations;
    Addresses addresses;
    std::vector<std::size_t> completed;  // of each lane
  };
  // One op of the step, the same on every rank except for addresses.
  struct Step {
    const PlainOp* op = nullptr;
    std::vector<std::int64_t> versions;  // of each use
    std::vector<Event> waits;
  };

  void expand(std::span<const Call> calls);
  [[nodiscard]] bool may_run(std::int64_t rank, std::size_t lane) const;
  [[nodiscard]] bool may_meet(std::int64_t rank, std::size_t lane) const;
  [[nodiscard]] std::vector<View> views(std::int64_t rank, const Step& step) const;
  void run_next(std::int64_t rank, std::size_t lane);

  Program program_;
  Run run_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Step>> lanes_;
};

}  // namespace fpdt
