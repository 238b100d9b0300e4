// One rank of a job of many, alone: to see whether a plan fits one device before renting
// sixty-four.
//
// Memory, compute and transfers are real. A collective is a local one in which every absent peer
// sends what this rank sends: the right amount of finite data of the right size, and not the right
// data. A run that used this communicator must say so wherever it reports numbers.
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
  // Nobody waits.
  void abort(std::exception_ptr) noexcept override {}

 private:
  std::int64_t rank_;
  std::int64_t ranks_;
  const Schedule* schedule_ = nullptr;
  std::vector<std::vector<std::span<const View>>> peers_;  // [lane][member]: every one is this rank
};

}  // namespace fpdt
