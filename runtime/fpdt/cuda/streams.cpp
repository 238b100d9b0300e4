// Streams, rings of events, and times.
#include "fpdt/cuda/streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/cuda/status.h"

namespace fpdt::cuda {
namespace {

std::vector<const Op*> awaited_ops(const Program& program) {
  std::vector<const Op*> awaited;
  for (const PlainBlock& block : program.blocks) {
    for (const PlainOp& op : block.ops) {
      for (const After& after : op.after) {
        const PlainBlock& of = program.blocks[static_cast<std::size_t>(after.block)];
        awaited.push_back(of.ops[static_cast<std::size_t>(after.op)].op);
      }
    }
  }
  std::sort(awaited.begin(), awaited.end());
  awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
  return awaited;
}

// The number of events in a lane's ring: one per op of a step, up to a limit.
std::int64_t ring_of(const Program& program, std::size_t lane) {
  constexpr std::int64_t kMost = 4096;
  std::int64_t most = 1;
  for (const auto* calls : {&program.schedule->train, &program.schedule->evaluate}) {
    std::int64_t ops = 0;
    for (const Call& call : *calls) {
      ops += program.blocks[static_cast<std::size_t>(call.block)].ops_on_lane[lane];
    }
    most = std::max(most, ops);
  }
  return std::min(most, kMost);
}

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Nanoseconds from one event to another; negative if `to` came first.
std::int64_t between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from, to), "the time between two events");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace

DeviceEvent::DeviceEvent(Times times) {
  const unsigned flags = times == Times::yes ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event_, flags), "an event");
}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

DeviceEvent::DeviceEvent(DeviceEvent&& other) noexcept
    : event_(std::exchange(other.event_, nullptr)) {}

DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

Streams::Streams(const Program& program)
    : lanes_(program.lanes.size()),
      awaited_(awaited_ops(program)),
      origin_(DeviceEvent::Times::yes) {
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities of streams");
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    // Collectives are small, and others wait for them, so they go first.
    const bool urgent = program.lanes[i].kind == LaneKind::comm;
    check(cudaStreamCreateWithPriority(&lanes_[i].stream, cudaStreamNonBlocking,
                                       urgent ? highest : lowest),
          "a stream");
    for (std::int64_t k = ring_of(program, i); k > 0; --k) {
      lanes_[i].ring.emplace_back(DeviceEvent::Times::no);
    }
  }
}

Streams::~Streams() {
  for (const Lane& lane : lanes_) {
    if (lane.stream == nullptr) continue;
    static_cast<void>(cudaStreamSynchronize(lane.stream));
    static_cast<void>(cudaStreamDestroy(lane.stream));
  }
}

void Streams::before(const Launch& launch) {
  const cudaStream_t stream = of(launch.lane);
  for (const Event& event : launch.waits) {
    const Lane& other = lanes_[static_cast<std::size_t>(event.lane)];
    FPDT_ASSERT(event.position < other.position);
    check(cudaStreamWaitEvent(stream, other.event(event.position).get(), 0),
          "a wait for another lane");
  }
  if (launch.interval == nullptr) return;
  if (timed_.empty()) begin_times();
  timed_.push_back({launch.interval, launch.lane});
  while (timers_.size() < 2 * timed_.size()) timers_.emplace_back(DeviceEvent::Times::yes);
  check(cudaEventRecord(timers_[2 * timed_.size() - 2].get(), stream), "the begin of an op");
}

void Streams::after(const Launch& launch) {
  Lane& lane = lanes_[static_cast<std::size_t>(launch.lane)];
  if (launch.interval != nullptr) {
    check(cudaEventRecord(timers_[2 * timed_.size() - 1].get(), lane.stream), "the end of an op");
  }
  if (std::binary_search(awaited_.begin(), awaited_.end(), launch.op)) {
    check(cudaEventRecord(lane.event(lane.position).get(), lane.stream), "the completion of an op");
  }
  ++lane.position;
}

void Streams::begin_times() {
  check(cudaEventRecord(origin_.get(), lanes_.front().stream), "the begin of a step");
  check(cudaEventSynchronize(origin_.get()), "the begin of a step");
  origin_time_ = now();
}

void Streams::synchronise() {
  for (Lane& lane : lanes_) {
    check(cudaStreamSynchronize(lane.stream), "a step on the GPU");
    lane.position = 0;
  }
  if (!timed_.empty()) note_times();
}

// Times between events are floats, which are exact enough only over a short while. So the origin
// moves to a later event from time to time.
void Streams::note_times() {
  constexpr std::size_t kCounted = 256;
  cudaEvent_t from = origin_.get();
  std::int64_t from_time = origin_time_;
  std::vector<std::int64_t> free(lanes_.size(), origin_time_);
  for (std::size_t i = 0; i < timed_.size(); ++i) {
    const cudaEvent_t begin = timers_[2 * i].get();
    const cudaEvent_t end = timers_[2 * i + 1].get();
    std::int64_t& lane_free = free[static_cast<std::size_t>(timed_[i].lane)];
    const std::int64_t began = std::max(lane_free, from_time + between(from, begin));
    const std::int64_t ended = began + std::max<std::int64_t>(0, between(begin, end));
    *timed_[i].interval = {began, ended};
    lane_free = ended;
    if (i % kCounted == kCounted - 1) {
      from_time += between(from, end);
      from = end;
    }
  }
  timed_.clear();
}

}  // namespace fpdt::cuda
