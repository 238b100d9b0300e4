// The ranks of this process: one executor each, on threads that persist between steps.
//
//   Ranks ranks(schedule, {});
//   ranks.executor(0).write(...);          // between steps, from the owner's thread
//   ranks.run(schedule.schedule().train);  // one step on every rank
//
// The first error of any rank is rethrown by the call that meets it. After that the ranks do not
// run again.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "fpdt/runtime/executor.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

struct RankOptions {
  // The processes of the job; must outlive the ranks. Null: this process holds all ranks.
  World* world = nullptr;
  // Connects the ranks of this process. Null: as threads of this process, which is the only one.
  Connect connect;
  // Makes the backend of each rank; null: a CpuBackend of `threads` threads (0: the rank's share of
  // the cores).
  std::function<std::unique_ptr<Backend>(Communicator&)> make_backend;
  std::int32_t threads = 0;
  // The record of each present rank; null: none is kept.
  std::function<FlightRecorder*(std::int64_t rank)> flight;
  // For each wait for a peer, where `connect` is null.
  std::chrono::milliseconds deadline{300'000};
};

class Ranks {
 public:
  // The schedule must outlive the ranks. Throws MemoryError when the machine lacks memory for them.
  Ranks(const VerifiedSchedule& schedule, const RankOptions& options);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Runs one step: schedule.train or schedule.evaluate.
  void run(std::span<const Call> calls);
  // Runs one step, and returns a trace of each present rank.
  std::vector<Trace> record(std::span<const Call> calls);

  // The ranks of this process.
  [[nodiscard]] const std::vector<std::int64_t>& present() const { return world_.place().present; }
  [[nodiscard]] World& world() const { return world_; }
  // Precondition: the rank is present. Rethrows the error that ended the ranks.
  [[nodiscard]] Executor& executor(std::int64_t rank) const;
  [[nodiscard]] const Schedule& schedule() const { return schedule_.schedule(); }
  // The bytes that the present ranks have sent to others so far, in all steps.
  [[nodiscard]] Traffic sent() const;

 private:
  using Task = std::function<void(std::int64_t rank, Executor& executor)>;
  // State shared by the rank threads and the owner, guarded by its mutex.
  struct Shared;

  void serve(Communicator& communicator);
  void serve_tasks(std::int64_t rank, Executor& executor);
  void wait_until_idle();
  void everywhere(const Task& task);

  const VerifiedSchedule& schedule_;
  RankOptions options_;
  std::unique_ptr<World> own_world_;  // where the caller gave none
  World& world_;
  std::unique_ptr<Shared> shared_;
  std::thread driver_;
};

}  // namespace fpdt
