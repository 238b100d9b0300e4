// The thread and its questions.
#include "fpdt/nccl/watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/cuda/status.h"
#include "fpdt/runtime/threads.h"

namespace fpdt::nccl {
namespace {

// The time between two questions: a tenth of the deadline, at most a tenth of a second.
std::chrono::milliseconds period_of(std::chrono::milliseconds deadline) {
  return std::clamp(deadline / 10, std::chrono::milliseconds(1), std::chrono::milliseconds(100));
}

}  // namespace

Watch::Watch(Comms& comms, std::size_t lanes)
    : comms_(comms),
      lanes_(lanes),
      thread_(start_thread([this] { run(); })),
      guard_(start_thread([this] { guard(); })) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    stopped_.notify_all();
  }
  thread_.join();
  guard_.join();
}

void Watch::prepare(std::size_t lane) {
  std::vector<Flight> ring(kFlightsMost);
  const std::lock_guard lock(mutex_);
  if (lanes_[lane].ring.empty()) lanes_[lane].ring = std::move(ring);
}

void Watch::begin(std::size_t number, cudaStream_t stream, const std::string& what) {
  comms_.check();
  Lane& lane = lanes_[number];
  FPDT_ASSERT(!lane.ring.empty());
  Pause pause;
  std::unique_lock lock(mutex_);
  while (lane.count == lane.ring.size()) {
    lock.unlock();
    pause();
    comms_.check();
    lock.lock();
  }
  Flight& flight = lane.ring[(lane.first + lane.count) % lane.ring.size()];
  lock.unlock();
  flight.what = &what;
  flight.begun.reset();
  cuda::check(cudaEventRecord(flight.begin.get(), stream), "the begin of a collective");
}

void Watch::end(std::size_t number, cudaStream_t stream) {
  Lane& lane = lanes_[number];
  std::unique_lock lock(mutex_);
  const Flight& flight = lane.ring[(lane.first + lane.count) % lane.ring.size()];
  lock.unlock();
  cuda::check(cudaEventRecord(flight.end.get(), stream), "the end of a collective");
  lock.lock();
  ++lane.count;
}

Watch::Flight* Watch::oldest(Lane& lane) {
  const std::lock_guard lock(mutex_);
  return lane.count > 0 ? &lane.ring[lane.first] : nullptr;
}

void Watch::forget(Lane& lane) {
  const std::lock_guard lock(mutex_);
  lane.first = (lane.first + 1) % lane.ring.size();
  --lane.count;
}

// An error of the device counts as an end: the rank meets it where it waits for the lane.
const Watch::Flight* Watch::advance(Lane& lane) {
  while (Flight* const flight = oldest(lane)) {
    if (cudaEventQuery(flight->end.get()) == cudaErrorNotReady) {
      if (!flight->begun && cudaEventQuery(flight->begin.get()) == cudaSuccess) {
        flight->begun = Clock::now();
      }
      const bool late = flight->begun && Clock::now() - *flight->begun >= comms_.deadline();
      return late ? flight : nullptr;
    }
    forget(lane);
  }
  return nullptr;
}

std::optional<Error> Watch::look() {
  for (Lane& lane : lanes_) {
    const Flight* const late = advance(lane);
    if (late == nullptr) continue;
    return PeerError(fmt::format(
        "rank {}: {} has not ended {} ms after it began: another rank of the group stopped, or has "
        "not come this far",
        comms_.rank(), *late->what, comms_.deadline().count()));
  }
  return {};
}

void Watch::run() {
  // Without it a question about an event would open a context on the first GPU.
  static_cast<void>(cudaSetDevice(comms_.options().device));
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period_of(comms_.deadline()), [&] { return stop_; })) {
    asking_ = Clock::now();
    lock.unlock();
    std::optional<Error> found = look();
    if (!found) found = comms_.look();
    lock.lock();
    asking_.reset();
    lock.unlock();
    if (found) static_cast<void>(comms_.abort(*found));
    lock.lock();
  }
}

void Watch::guard() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period_of(comms_.deadline()), [&] { return stop_; })) {
    if (!asking_ || Clock::now() - *asking_ < comms_.deadline()) continue;
    lock.unlock();
    return comms_.give_up(
        "the driver does not answer",
        PeerError(fmt::format("rank {}: the GPU has been asked for {} ms how far it is: its queues "
                              "are full behind a collective for which another rank is missing",
                              comms_.rank(), comms_.deadline().count())));
  }
}

}  // namespace fpdt::nccl
