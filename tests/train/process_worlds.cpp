// One mutex guards all that processes share, so each wait is one condition on one state.
#include "process_worlds.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/comm/thread.h"

namespace fpdt {
namespace {

std::size_t at(std::int64_t process) { return static_cast<std::size_t>(process); }

// The state that all processes share.
class Job {
 public:
  Job(std::int64_t processes, std::chrono::milliseconds deadline)
      : processes_(processes),
        deadline_(deadline),
        messages_(at(processes)),
        mains_(at(processes)),
        ends_(at(processes)),
        on_the_way_(at(processes * processes)) {}

  ~Job() {
    for (Ranked& ranked : ranked_) ranked.driver.join();
  }

  std::vector<std::string> gather(std::int64_t mine, std::string_view message) {
    std::unique_lock lock(mutex_);
    messages_[at(mine)] = message;
    meet(lock, mine, gathering_, [this] { gathered_ = messages_; });
    // Nobody can overwrite it before this process arrives again.
    return gathered_;
  }

  void send(std::int64_t mine, std::int64_t to, std::span<const std::byte> bytes) {
    std::unique_lock lock(mutex_);
    const std::span<const std::byte>*& slot = way(mine, to);
    FPDT_ASSERT(slot == nullptr && mine != to);
    slot = &bytes;
    changed_.notify_all();
    try {
      wait(lock, mine, [&] { return slot == nullptr; });
    } catch (...) {
      slot = nullptr;
      throw;
    }
  }

  void receive(std::int64_t mine, std::int64_t from, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    const std::span<const std::byte>*& slot = way(from, mine);
    wait(lock, mine, [&] { return slot != nullptr; });
    FPDT_ASSERT(slot->size() == bytes.size());
    if (!bytes.empty()) std::memcpy(bytes.data(), slot->data(), bytes.size());
    slot = nullptr;
    changed_.notify_all();
  }

  void fail(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    fail_locked(failure);
  }

  int leave(int code) {
    std::unique_lock lock(mutex_);
    ++left_;
    changed_.notify_all();
    const auto all = [this] { return failure_ || left_ == processes_; };
    changed_.wait_for(lock, deadline_, all);
    return failure_ ? static_cast<int>(failure_->code) : code;
  }

  // The ranks of all processes meet here. The last one to arrive starts their threads.
  void connect(std::int64_t mine, const RankMain& rank_main) {
    std::unique_lock lock(mutex_);
    mains_[at(mine)] = &rank_main;
    ends_[at(mine)] = {};
    meet(lock, mine, connecting_, [this] {
      Ranked& ranked = ranked_.emplace_back();
      ranked.driver = std::thread([this, &ranked] { run(ranked); });
    });
    changed_.wait(lock, [&] { return ends_[at(mine)].has_value(); });
    if (*ends_[at(mine)] != nullptr) std::rethrow_exception(*ends_[at(mine)]);
  }

 private:
  // Counts the processes that have arrived at one kind of meeting.
  struct Round {
    std::int64_t arrived = 0;
    std::uint64_t number = 0;
  };

  // The ranks of all processes, from a meeting in `connect` until all of them have ended. Their
  // communicators live as long, since a failure of any process goes through them.
  struct Ranked {
    std::vector<Communicator*> communicators;
    std::int64_t ended = 0;
    std::thread driver;
  };

  void run(Ranked& ranked) {
    try {
      run_ranks(processes_, [&](Communicator& communicator) { serve(ranked, communicator); },
                {deadline_});
    } catch (...) {
      // A process has the error of its own rank, unless the machine refused the threads.
      const std::lock_guard lock(mutex_);
      if (ranked.ended > 0) return;
      std::fill(ends_.begin(), ends_.end(), std::current_exception());
      changed_.notify_all();
    }
  }

  void serve(Ranked& ranked, Communicator& communicator) {
    const std::int64_t mine = communicator.rank();
    std::unique_lock lock(mutex_);
    ranked.communicators.push_back(&communicator);
    if (failure_) communicator.abort(std::make_exception_ptr(PeerError(reason())));
    const RankMain& rank_main = *mains_[at(mine)];
    lock.unlock();
    std::exception_ptr error;
    try {
      rank_main(communicator);
    } catch (...) {
      error = std::current_exception();
      communicator.abort(error);
    }
    lock.lock();
    ends_[at(mine)] = error;
    ++ranked.ended;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ranked.ended == processes_; });
    ranked.communicators.clear();
  }

  void fail_locked(const Failure& failure) {
    if (failure_) return;
    failure_ = failure;
    for (const Ranked& ranked : ranked_) {
      for (Communicator* const communicator : ranked.communicators) {
        communicator->abort(std::make_exception_ptr(PeerError(reason())));
      }
    }
    changed_.notify_all();
  }

  // Waits for all processes; the last one to arrive does `once`.
  template <class Once>
  void meet(std::unique_lock<std::mutex>& lock, std::int64_t mine, Round& round, Once once) {
    if (failure_) throw PeerError(reason());
    const std::uint64_t number = round.number;
    if (++round.arrived == processes_) {
      round.arrived = 0;
      ++round.number;
      once();
      changed_.notify_all();
      return;
    }
    wait(lock, mine, [&] { return round.number != number; });
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, std::int64_t mine, Condition condition) {
    changed_.wait_for(lock, deadline_, [&] { return condition() || failure_.has_value(); });
    if (condition()) return;
    fail_locked({ExitCode::peer_lost, mine,
                 fmt::format("waited {} ms for another process", deadline_.count())});
    throw PeerError(reason());
  }

  [[nodiscard]] std::string reason() const {
    return fmt::format("rank {} stopped: {}", failure_->process, failure_->what);
  }

  const std::span<const std::byte>*& way(std::int64_t from, std::int64_t to) {
    return on_the_way_[at(from * processes_ + to)];
  }

  const std::int64_t processes_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  std::vector<std::string> messages_, gathered_;
  Round gathering_, connecting_;
  std::vector<const RankMain*> mains_;
  std::vector<std::optional<std::exception_ptr>> ends_;  // of the ranks; empty while they run
  std::vector<const std::span<const std::byte>*> on_the_way_;
  std::int64_t left_ = 0;
  std::list<Ranked> ranked_;  // since the job began
};

Place one_of(std::int64_t process, std::int64_t processes) {
  return {processes, {process}, process, processes, 0, 1, process, processes};
}

class ProcessWorld final : public World {
 public:
  ProcessWorld(Job& job, std::int64_t process, std::int64_t processes)
      : World(one_of(process, processes)), job_(job) {}

  std::vector<std::string> gather(std::string_view mine) override {
    return job_.gather(place().process, mine);
  }
  void send(std::int64_t process, std::span<const std::byte> bytes) override {
    job_.send(place().process, process, bytes);
  }
  void receive(std::int64_t process, std::span<std::byte> bytes) override {
    job_.receive(place().process, process, bytes);
  }
  void fail(const Failure& failure) noexcept override { job_.fail(failure); }
  int leave(int code) noexcept override { return job_.leave(code); }

 private:
  Job& job_;
};

std::optional<Error> run_process(World& world, const Connect& connect,
                                 const ProcessMain& process_main) {
  std::optional<Error> thrown;
  try {
    process_main(world, connect);
  } catch (const Error& error) {
    thrown = error;
  } catch (const std::exception& error) {
    thrown.emplace(ExitCode::internal, error.what());
  }
  if (thrown) world.fail({thrown->code(), world.place().process, thrown->what()});
  static_cast<void>(world.leave(thrown ? static_cast<int>(thrown->code()) : 0));
  return thrown;
}

}  // namespace

RankOptions in_process(World& world, const Connect& connect) {
  RankOptions options;
  options.threads = 1;
  options.world = &world;
  options.connect = connect;
  return options;
}

std::vector<std::optional<Error>> run_processes(std::int64_t processes,
                                                const ProcessMain& process_main,
                                                std::chrono::milliseconds deadline) {
  Job job(processes, deadline);
  std::vector<std::optional<Error>> thrown(at(processes));
  std::vector<std::thread> threads;
  for (std::int64_t process = 0; process < processes; ++process) {
    threads.emplace_back([&job, &process_main, &thrown, process, processes] {
      ProcessWorld world(job, process, processes);
      const Connect connect = [&job, process](const RankMain& rank_main) {
        job.connect(process, rank_main);
      };
      thrown[at(process)] = run_process(world, connect, process_main);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace fpdt
