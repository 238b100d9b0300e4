// Runs one rank of a larger job by itself, to see whether a plan fits one device before renting
// sixty-four.
//
// Memory, compute and transfers are real. A collective runs locally: every absent peer sends what
// this rank sends. The amount and size of the data are right and its values are finite, but they
// are not the right values. A run that uses this communicator must say so wherever it reports
// numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/runtime/communicator.h"

namespace fpdt {

class SoloCommunicator final : public Communicator {
 public:
  SoloCommunicator(std::int64_t rank, std::int64_t ranks) : rank_(rank), ranks_(ranks) {}

  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  [[nodiscard]] std::int64_t ranks() const override { return ranks_; }
  [[nodiscard]] std::int64_t local_ranks() const override { return 1; }
  void prepare(const Program& program) override;
  void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                  Mover& mover) override;
  void barrier() override {}
  // No other rank waits.
  void abort(std::exception_ptr) noexcept override {}

 private:
  std::int64_t rank_;
  std::int64_t ranks_;
  const Schedule* schedule_ = nullptr;
  std::vector<std::vector<std::span<const View>>> peers_;  // [lane][member]: this rank's views
};

}  // namespace fpdt
