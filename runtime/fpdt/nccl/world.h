// A world that needs nothing but NCCL: for processes that torchrun started, or anything else that
// sets its variables.
//
// Everybody derives NCCL's identifier from the place where rank 0 listens, so it is no secret:
// whoever reaches the port can join or disturb the job. Use it on networks that you trust.
//
// Messages go through a communicator of all ranks. It has no other channel for bad news. A process
// that fails aborts its communicators: processes on other nodes then see an error, those of its own
// node only their deadline. torchrun ends them before that, once the first has ended. So `leave`
// knows the failures of this process and those it saw, not the first one of any.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/nccl/comms.h"
#include "fpdt/nccl/post.h"
#include "fpdt/nccl/torchrun.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

class NcclWorld final : public World {
 public:
  // Together with the other processes. Call it before anything else uses NCCL: it sets
  // NCCL_COMM_ID.
  NcclWorld(const Torchrun& job, const NcclOptions& options);

  std::vector<std::string> gather(std::string_view mine) override;
  void send(std::int64_t process, std::span<const std::byte> bytes) override;
  void receive(std::int64_t process, std::span<std::byte> bytes) override;
  void set_deadline(std::chrono::milliseconds deadline) override;
  void fail(const Failure& failure) noexcept override;
  [[nodiscard]] std::optional<Failure> failure() const override;
  int leave(int code) noexcept override;

  // Connects the rank of this process, by communicators that are split from this world's. The world
  // must outlive the result.
  [[nodiscard]] Connect connect();
  // Device memory of all that, as far as it is connected.
  [[nodiscard]] Bytes device_bytes() const;

 private:
  nccl::Comms comms_;
  nccl::Comm& everybody_;
  nccl::Post post_;
  mutable std::mutex mutex_;  // guards the next
  std::optional<Failure> failure_;
};

}  // namespace fpdt
