// The ranks of a run: one executor each, on threads that persist between steps.
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
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "fpdt/runtime/executor.h"

namespace fpdt {

struct RankOptions {
  // Run only this rank of the schedule. Its results are not those of the training (comm/solo.h).
  std::optional<std::int64_t> solo_rank;
  // Makes the backend of each rank; null: a CpuBackend of `threads` threads (0: the rank's share of
  // the cores).
  std::function<std::unique_ptr<Backend>(Communicator&)> make_backend;
  std::int32_t threads = 0;
  std::chrono::milliseconds deadline{300'000};  // for each wait for a peer
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

  // The ranks that exist here: all of them, or the one that runs alone.
  [[nodiscard]] const std::vector<std::int64_t>& present() const { return present_; }
  [[nodiscard]] bool complete() const;
  // Precondition: the rank is present. Rethrows the error that ended the ranks.
  [[nodiscard]] Executor& executor(std::int64_t rank) const;
  [[nodiscard]] const Schedule& schedule() const { return schedule_.schedule(); }

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
  std::vector<std::int64_t> present_;
  std::unique_ptr<Shared> shared_;
  std::thread driver_;
};

}  // namespace fpdt
