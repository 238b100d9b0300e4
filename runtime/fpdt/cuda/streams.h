// The lanes of a rank as streams of a GPU, and the edges between them as events. Both belong to the
// device that is current when they are created; call all functions with that device current.
//
// The completion of an op is an event in the ring of its lane, recorded only if some op of the
// program waits for it. If the ring has dropped the event, the wait is for a later op of the same
// lane, which has been launched as well. This waits longer than needed, but never for ever. The
// host waits only in `synchronise`.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

#include "fpdt/runtime/backend.h"

namespace fpdt::cuda {

// One event of the current device. Only streams of that device can record it; streams of any device
// can wait for it. An event without times costs less.
class DeviceEvent {
 public:
  enum class Times : bool { no, yes };
  explicit DeviceEvent(Times times);
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept;
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Streams {
 public:
  explicit Streams(const Program& program);  // must outlive this
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  [[nodiscard]] cudaStream_t of(std::int32_t lane) const {
    return lanes_[static_cast<std::size_t>(lane)].stream;
  }

  // Call these around the launch of an op: `before` inserts its waits, `after` records its
  // completion.
  void before(const Launch& launch);
  void after(const Launch& launch);

  // Waits for all lanes, records the times of the ops that asked for them, and starts again at
  // position 0. Throws what failed.
  void synchronise();

 private:
  struct Lane {
    [[nodiscard]] const DeviceEvent& event(std::int64_t at) const {
      return ring[static_cast<std::size_t>(at) % ring.size()];
    }
    cudaStream_t stream = nullptr;
    std::vector<DeviceEvent> ring;  // indexed by position
    std::int64_t position = 0;      // ops launched in this step
  };
  // An op that asked for its time: events 2*i and 2*i + 1 of timers_.
  struct Timed {
    Interval* interval = nullptr;
    std::int32_t lane = 0;
  };

  void begin_times();
  void note_times();

  std::vector<Lane> lanes_;
  std::vector<const Op*> awaited_;  // sorted
  DeviceEvent origin_;              // the step's times count from it
  std::int64_t origin_time_ = 0;    // host clock at origin_
  std::vector<DeviceEvent> timers_;
  std::vector<Timed> timed_;
};

}  // namespace fpdt::cuda
