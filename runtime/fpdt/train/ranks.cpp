// One driver thread runs the threads of the ranks. Each rank builds its executor and then serves
// tasks.
#include "fpdt/train/ranks.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/comm/local.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {

struct Ranks::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Executor*> executors;  // by rank; null where absent
  const Task* task = nullptr;
  std::uint64_t round = 0;   // number of tasks given so far
  std::size_t idle = 0;      // number of ranks that wait for the next task
  bool stopping = false;     // set by the owner, or when a rank fails
  bool finished = false;     // all rank threads have ended
  std::exception_ptr error;  // the first error
};

Ranks::Ranks(const VerifiedSchedule& schedule, const RankOptions& options)
    : schedule_(schedule),
      options_(options),
      own_world_(options.world == nullptr ? std::make_unique<LocalWorld>(schedule.schedule().ranks)
                                          : nullptr),
      world_(options.world == nullptr ? *own_world_ : *options.world),
      shared_(std::make_unique<Shared>()) {
  const std::int64_t ranks = schedule.schedule().ranks;
  FPDT_ASSERT(world_.place().ranks == ranks);
  if (!options_.connect) options_.connect = connect_local(world_, options.deadline);
  shared_->executors.resize(static_cast<std::size_t>(ranks));
  driver_ = start_thread([this] {
    std::exception_ptr error;
    try {
      options_.connect([this](Communicator& communicator) { serve(communicator); });
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->error = error;
    shared_->finished = true;
    shared_->changed.notify_all();
  });
  try {
    wait_until_idle();
  } catch (...) {
    driver_.join();
    throw;
  }
}

Ranks::~Ranks() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
  }
  driver_.join();
}

// Body of a rank's thread, from its first allocation to its last op.
void Ranks::serve(Communicator& communicator) {
  FlightRecorder* const flight = options_.flight ? options_.flight(communicator.rank()) : nullptr;
  try {
    const std::unique_ptr<Backend> backend =
        options_.make_backend ? options_.make_backend(communicator)
                              : std::make_unique<CpuBackend>(
                                    communicator, CpuOptions{options_.threads, Populate::no});
    Executor executor(schedule_, *backend, communicator, flight);
    try {
      serve_tasks(communicator.rank(), executor);
    } catch (...) {
      // Abort now: the backend's destructor waits for its lanes, and these may wait for peers.
      communicator.abort(std::current_exception());
      throw;
    }
  } catch (...) {
    if (flight != nullptr) {
      const Error error = current_error();
      flight->fail(error, error.code() != ExitCode::peer_lost, flight_clock());
    }
    // Ranks that wait for a task are in no collective, and would not notice the failure.
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    throw;
  }
}

void Ranks::serve_tasks(std::int64_t rank, Executor& executor) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  shared.executors[static_cast<std::size_t>(rank)] = &executor;
  for (std::uint64_t round = 0;;) {
    ++shared.idle;
    shared.changed.notify_all();
    shared.changed.wait(lock, [&] { return shared.stopping || shared.round != round; });
    if (shared.stopping) return;
    round = shared.round;
    const Task& task = *shared.task;
    lock.unlock();
    task(rank, executor);
    lock.lock();
  }
}

void Ranks::wait_until_idle() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock,
                        [&] { return shared_->finished || shared_->idle == present().size(); });
  // One failed rank ends all ranks. The driver sets `finished` when the last one has ended.
  if (shared_->stopping) shared_->changed.wait(lock, [&] { return shared_->finished; });
  if (shared_->error) std::rethrow_exception(shared_->error);
}

void Ranks::everywhere(const Task& task) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->error) std::rethrow_exception(shared_->error);
    shared_->task = &task;
    shared_->idle = 0;
    ++shared_->round;
    shared_->changed.notify_all();
  }
  wait_until_idle();
}

void Ranks::run(std::span<const Call> calls) {
  everywhere([calls](std::int64_t, Executor& executor) { executor.run(calls); });
}

std::vector<Trace> Ranks::record(std::span<const Call> calls) {
  std::vector<Trace> traces(shared_->executors.size());
  everywhere([&](std::int64_t rank, Executor& executor) {
    traces[static_cast<std::size_t>(rank)] = executor.record(calls);
  });
  std::vector<Trace> present;
  for (const std::int64_t rank : world_.place().present) {
    present.push_back(std::move(traces[static_cast<std::size_t>(rank)]));
  }
  return present;
}

Executor& Ranks::executor(std::int64_t rank) const {
  const std::lock_guard lock(shared_->mutex);
  // The rank has ended and destroyed its executor.
  if (shared_->error) std::rethrow_exception(shared_->error);
  Executor* const executor = shared_->executors.at(static_cast<std::size_t>(rank));
  FPDT_ASSERT(executor != nullptr);
  return *executor;
}

Traffic Ranks::sent() const {
  Traffic total;
  for (const std::int64_t rank : present()) total += executor(rank).sent();
  return total;
}

}  // namespace fpdt
