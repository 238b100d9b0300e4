// The processes of a job that was started by mpirun or another launcher of Open MPI.
#pragma once

#include <memory>

#include "fpdt/mpi/process.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

class MpiWorld final : public World {
 public:
  // Errors as for open_mpi.
  explicit MpiWorld(const MpiOptions& options);

  std::vector<std::string> gather(std::string_view mine) override;
  void send(std::int64_t process, std::span<const std::byte> bytes) override;
  void receive(std::int64_t process, std::span<std::byte> bytes) override;
  void set_deadline(std::chrono::milliseconds deadline) override;
  void fail(const Failure& failure) noexcept override;
  [[nodiscard]] std::optional<Failure> failure() const override { return process_->failure(); }
  // When not all processes arrive, ends this one by MPI_Abort, and the launcher ends the others.
  // The launcher's exit code is the returned one, except that it is 137 when a signal killed a
  // process.
  int leave(int code) noexcept override;

  [[nodiscard]] MpiProcess& process() { return *process_; }

 private:
  explicit MpiWorld(std::unique_ptr<MpiProcess> process);

  std::unique_ptr<MpiProcess> process_;
};

}  // namespace fpdt
