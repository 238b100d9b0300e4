// All communicators of NCCL that a process has, and every call of NCCL that it makes.
//
// Nothing blocks for ever. Communicators do not block: a call returns while NCCL works, and whoever
// made it asks until NCCL is done or a limit has passed. One thread at a time is inside NCCL,
// because asking from two threads is no more safe than calling (ncclCommGetAsyncError completes the
// pending call). A failure of one communicator aborts all of them, each on a thread of its own: the
// abort of one waits for its kernels, which may be queued behind those of another.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/nccl/api.h"
#include "fpdt/nccl/options.h"
#include "fpdt/runtime/awake_clock.h"

namespace fpdt::nccl {

struct Comm {
  std::string name;  // for people: "all ranks", "lane comm.0"
  ncclComm_t handle = nullptr;
};

// Keeps the first result that is neither success nor "in progress".
class Results {
 public:
  void operator()(ncclResult_t result) {
    if (first_ == ncclSuccess && result != ncclInProgress) first_ = result;
  }
  [[nodiscard]] ncclResult_t first() const { return first_; }

 private:
  ncclResult_t first_ = ncclSuccess;
};

// Sleeps between two questions: not at first, then up to a millisecond.
class Pause {
 public:
  void operator()();

 private:
  std::int64_t turns_ = 0;
};

// On one host NCCL needs no network, so its sockets stay on the host, unless the environment says
// where they are. Call it before any function of NCCL.
void stay_on_host();

class Comms {
 public:
  // `rank` is for messages. Selects the device for the calling thread. Throws InputError when there
  // is no suitable NCCL.
  Comms(const NcclOptions& options, std::int64_t rank);
  // Closes what is still open, unless it was aborted.
  ~Comms();
  Comms(const Comms&) = delete;
  Comms& operator=(const Comms&) = delete;

  [[nodiscard]] const NcclOptions& options() const { return options_; }
  // The deadline of the options, until it is changed.
  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  // Device memory that NCCL has taken, as the driver counts it.
  [[nodiscard]] Bytes device_bytes() const { return device_bytes_; }

  // Together with the other ranks: a communicator of all of them with a single channel, and one of
  // those that give the same color, in the order of their keys. References stay valid until
  // `close`. All calls below throw PeerError when a peer failed or a limit passed, and Error when
  // NCCL refuses; both abort.
  Comm& form(const ncclUniqueId& id, std::int64_t ranks, std::string name);
  Comm& split(Comm& from, std::int64_t color, std::int64_t key, std::string name);
  // Ends a communicator, once the device is done with it.
  void close(Comm& comm) noexcept;

  // Makes the calls of one group and returns when NCCL has launched them: work that is queued on
  // the stream from now on runs after them. `calls` is called with (Results&) inside NCCL.
  template <class Calls>
  void group(const Comm& comm, std::chrono::milliseconds limit, Calls&& calls) {
    require(enter([&] {
              Results results;
              results(api_.ncclGroupStart());
              if (results.first() == ncclSuccess) {
                calls(results);
                results(api_.ncclGroupEnd());
              }
              return results.first();
            }),
            comm, "a collective");
    await(comm, limit, "a collective");
  }

  // Returns when the device has reached an event that was recorded. `what` is for the message.
  void await(cudaEvent_t event, std::chrono::milliseconds limit, const std::string& what);

  // Runs `work` and adds what the driver then counts more of to device_bytes.
  template <class Work>
  void count(Work&& work) {
    const Bytes before = cuda::free_device_memory();
    work();
    device_bytes_ += before - cuda::free_device_memory();
  }

  // The error that occurred meanwhile: bad news, an error of a communicator, or a call that does
  // not return.
  [[nodiscard]] std::optional<Error> look();
  // Aborts every communicator and returns when that is done. Whoever waits here, now or later, gets
  // a PeerError with the message of the first cause. Returns whether this one is the first.
  bool abort(const Error& cause) noexcept;
  // Aborts, then throws the cause if it is the first, else PeerError.
  [[noreturn]] void fail(const Error& cause);
  // Throws PeerError after an abort.
  void check() const;
  // Ends the process with the code of the cause when an abort does not help. `why` is for people.
  // Returns only in tests.
  void give_up(std::string_view why, const Error& cause) const;

 private:
  using Clock = AwakeClock;

  // Calls `work`, which calls NCCL, while no other thread does. Throws PeerError after an abort.
  template <class Work>
  ncclResult_t enter(Work&& work) {
    begin_call();
    const ncclResult_t result = work();
    end_call();
    return result;
  }
  void begin_call();
  void end_call();
  Comm& add(std::string name);
  void await(const Comm& comm, std::chrono::milliseconds limit, std::string_view what);
  void require(ncclResult_t result, const Comm& comm, std::string_view what);
  [[nodiscard]] Error error(ncclResult_t result, const Comm& comm, std::string_view what) const;
  void abort_all(std::unique_lock<std::mutex>& lock) noexcept;
  [[nodiscard]] bool open() const;

  const NcclOptions options_;
  std::atomic<std::chrono::milliseconds> deadline_;
  const Api& api_;
  const std::int64_t rank_;
  Bytes device_bytes_;

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  bool inside_ = false;  // some thread is inside NCCL
  Clock::time_point entered_;
  std::list<Comm> comms_;  // changed by the thread inside NCCL only
  std::optional<Error> failure_;
  std::size_t aborting_ = 0;  // communicators whose abort has not returned
  bool aborted_ = false;
};

}  // namespace fpdt::nccl
