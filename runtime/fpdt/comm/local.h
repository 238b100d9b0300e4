// The world of a single process: it holds all ranks of the job, or one that runs alone.
#pragma once

#include <chrono>
#include <cstdint>

#include "fpdt/runtime/world.h"

namespace fpdt {

class LocalWorld final : public World {
 public:
  // All ranks.
  explicit LocalWorld(std::int64_t ranks);
  // One rank of a larger job (comm/solo.h). Its results are not those of the job.
  LocalWorld(std::int64_t rank, std::int64_t ranks);

  std::vector<std::string> gather(std::string_view mine) override;
  void send(std::int64_t process, std::span<const std::byte> bytes) override;
  void receive(std::int64_t process, std::span<std::byte> bytes) override;
  void fail(const Failure&) noexcept override {}
  int leave(int code) noexcept override { return code; }
};

// Connects the ranks of a single process: as threads that meet, or the one that runs alone.
// `deadline` is for each wait for a peer. The world must outlive the result.
Connect connect_local(const World& world, std::chrono::milliseconds deadline);

}  // namespace fpdt
