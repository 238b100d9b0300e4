// Turns inside NCCL, limits, and the abort.
#include "fpdt/nccl/comms.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/cuda/status.h"
#include "fpdt/runtime/threads.h"

namespace fpdt::nccl {
namespace {

const Api& api_of(const NcclOptions& options) {
  if (options.api == nullptr) return library();
  require_version(version(*options.api));
  return *options.api;
}

// Communicators that do not block, share nothing with the one that they were split from, and use at
// most so many thread blocks.
ncclConfig_t configuration(const Comm& comm, std::int32_t channels) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  config.minCTAs = 1;
  config.maxCTAs = channels;
  config.commName = comm.name.c_str();
  return config;
}

// A thread of NCCL sets the handle of a communicator that is being split.
ncclComm_t handle_of(Comm& comm) { return std::atomic_ref(comm.handle).load(); }

[[noreturn]] void end_process(std::string_view why, const Error& cause) {
  fmt::print(stderr, "fpdt: {}, so this process ends at once. {}\n", why, cause.what());
  std::fflush(stderr);
  std::_Exit(static_cast<int>(cause.code()));
}

}  // namespace

void stay_on_host() { static_cast<void>(::setenv("NCCL_SOCKET_IFNAME", "lo", 0)); }

void Pause::operator()() {
  constexpr std::int64_t kSpins = 100;
  constexpr std::int64_t kMostMicroseconds = 1000;
  ++turns_;
  if (turns_ <= kSpins) return std::this_thread::yield();
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::min(20 * (turns_ - kSpins), kMostMicroseconds)));
}

Comms::Comms(const NcclOptions& options, std::int64_t rank)
    : options_(options), deadline_(options.deadline), api_(api_of(options_)), rank_(rank) {
  FPDT_ASSERT(options_.channels > 0 && (options_.channels & (options_.channels - 1)) == 0);
  cuda::check(cudaSetDevice(options_.device), fmt::format("GPU {}", options_.device));
}

Comms::~Comms() {
  while (open()) close(comms_.front());
}

bool Comms::open() const {
  const std::lock_guard lock(mutex_);
  return !failure_ && !comms_.empty();
}

void Comms::begin_call() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !inside_ || failure_; });
  if (failure_) throw PeerError(failure_->what());
  inside_ = true;
  entered_ = Clock::now();
}

void Comms::end_call() {
  const std::lock_guard lock(mutex_);
  inside_ = false;
  changed_.notify_all();
}

Comm& Comms::add(std::string name) {
  begin_call();
  Comm* added = nullptr;
  {
    const std::lock_guard lock(mutex_);
    added = &comms_.emplace_back(Comm{std::move(name)});
  }
  end_call();
  return *added;
}

Comm& Comms::form(const ncclUniqueId& id, std::int64_t ranks, std::string name) {
  Comm& comm = add(std::move(name));
  ncclConfig_t config = configuration(comm, 1);
  count([&] {
    require(enter([&] {
              return api_.ncclCommInitRankConfig(&comm.handle, static_cast<int>(ranks), id,
                                                 static_cast<int>(rank_), &config);
            }),
            comm, "forming it");
    await(comm, options_.forming, "forming it");
  });
  return comm;
}

Comm& Comms::split(Comm& from, std::int64_t color, std::int64_t key, std::string name) {
  Comm& comm = add(std::move(name));
  ncclConfig_t config = configuration(comm, options_.channels);
  count([&] {
    require(enter([&] {
              return api_.ncclCommSplit(from.handle, static_cast<int>(color), static_cast<int>(key),
                                        &comm.handle, &config);
            }),
            comm, "forming it");
    // NCCL sets the handle when it is done. Until then the parent has the result.
    await(from, options_.forming, fmt::format("forming {}", comm.name));
  });
  return comm;
}

void Comms::close(Comm& comm) noexcept {
  try {
    require(enter([&] { return api_.ncclCommFinalize(comm.handle); }), comm, "closing it");
    await(comm, options_.abort_limit, "closing it");
    require(enter([&] {
              const ncclResult_t result = api_.ncclCommDestroy(comm.handle);
              const std::lock_guard lock(mutex_);
              comms_.remove_if([&](const Comm& one) { return &one == &comm; });
              return result;
            }),
            comm, "closing it");
  } catch (const Error&) {
    // All communicators are aborted by now.
  }
}

void Comms::await(const Comm& comm, std::chrono::milliseconds limit, std::string_view what) {
  const Clock::time_point end = Clock::now() + limit;
  for (Pause pause;; pause()) {
    ncclResult_t state = ncclInProgress;
    require(enter([&] { return api_.ncclCommGetAsyncError(comm.handle, &state); }), comm, what);
    if (state == ncclSuccess) return;
    require(state, comm, what);
    if (Clock::now() < end) continue;
    fail(
        PeerError(fmt::format("rank {} waited {} ms for NCCL ({}, {}): a rank is absent or stopped",
                              rank_, limit.count(), comm.name, what)));
  }
}

void Comms::await(cudaEvent_t event, std::chrono::milliseconds limit, const std::string& what) {
  const Clock::time_point end = Clock::now() + limit;
  for (Pause pause;; pause()) {
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) cuda::check(status, what);
    check();
    if (status == cudaSuccess) return;
    if (const std::optional<Error> found = look()) fail(*found);
    if (Clock::now() < end) continue;
    fail(PeerError(
        fmt::format("rank {} waited {} ms for the other ranks: {}", rank_, limit.count(), what)));
  }
}

void Comms::require(ncclResult_t result, const Comm& comm, std::string_view what) {
  if (result != ncclSuccess && result != ncclInProgress) fail(error(result, comm, what));
}

Error Comms::error(ncclResult_t result, const Comm& comm, std::string_view what) const {
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  std::string text =
      fmt::format("rank {}: {}, {}: NCCL says: {}", rank_, comm.name, what, words(api_, result));
  // A GPU that has failed does not answer, and this must not throw on the thread that watches.
  std::size_t free = 0, total = 0;
  if (result == ncclUnhandledCudaError && cudaMemGetInfo(&free, &total) == cudaSuccess) {
    text += fmt::format("; {} of device memory is free",
                        format_bytes(Bytes{static_cast<std::int64_t>(free)}));
  }
  return Error(peer ? ExitCode::peer_lost : ExitCode::internal, text);
}

std::optional<Error> Comms::look() {
  if (options_.bad_news) {
    if (std::optional<Error> news = options_.bad_news()) return news;
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return {};
    if (inside_) {
      const auto since =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - entered_);
      if (since < deadline()) return {};
      return PeerError(
          fmt::format("rank {}: a call of NCCL has not returned for {} ms", rank_, since.count()));
    }
    inside_ = true;
    entered_ = Clock::now();
  }
  std::optional<Error> found;
  for (Comm& comm : comms_) {
    ncclResult_t state = ncclSuccess;
    const ncclComm_t handle = handle_of(comm);
    if (handle == nullptr) continue;
    const ncclResult_t asked = api_.ncclCommGetAsyncError(handle, &state);
    for (const ncclResult_t result : {asked, state}) {
      if (found || result == ncclSuccess || result == ncclInProgress) continue;
      found = error(result, comm, "between two calls");
    }
  }
  end_call();
  return found;
}

bool Comms::abort(const Error& cause) noexcept {
  std::unique_lock lock(mutex_);
  if (failure_) {
    changed_.wait(lock, [&] { return aborted_; });
    return false;
  }
  failure_.emplace(cause);
  changed_.notify_all();
  // A call that hangs does not hold the abort up: NCCL lets another thread abort it.
  changed_.wait_for(lock, options_.abort_limit, [&] { return !inside_; });
  abort_all(lock);
  aborted_ = true;
  changed_.notify_all();
  return true;
}

void Comms::abort_all(std::unique_lock<std::mutex>& lock) noexcept {
  const auto abort_one = [this](ncclComm_t handle) {
    static_cast<void>(cudaSetDevice(options_.device));
    static_cast<void>(api_.ncclCommAbort(handle));
    const std::lock_guard guard(mutex_);
    --aborting_;
    changed_.notify_all();
  };
  std::vector<ncclComm_t> handles;
  for (Comm& comm : comms_) {
    const ncclComm_t handle = handle_of(comm);
    if (handle != nullptr) handles.push_back(handle);
  }
  aborting_ = handles.size();
  lock.unlock();
  std::vector<std::thread> threads;
  for (const ncclComm_t handle : handles) {
    try {
      threads.push_back(start_thread([abort_one, handle] { abort_one(handle); }));
    } catch (const MemoryError&) {
      abort_one(handle);  // no more threads available: this one does it
    }
  }
  lock.lock();
  if (!changed_.wait_for(lock, options_.abort_limit, [&] { return aborting_ == 0; })) {
    const Error cause = *failure_;
    lock.unlock();
    give_up("NCCL does not abort", cause);
    lock.lock();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  lock.lock();
}

void Comms::fail(const Error& cause) {
  if (!abort(cause)) check();
  throw_error(cause);
}

void Comms::give_up(std::string_view why, const Error& cause) const {
  options_.give_up ? options_.give_up(cause) : end_process(why, cause);
}

void Comms::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw PeerError(failure_->what());
}

}  // namespace fpdt::nccl
