// The lanes of a rank as streams of a GPU, and the edges between them as events.
//
// An op's completion is an event in the ring of its lane, recorded only when some op of the program
// waits for it. If the ring has dropped that event, the wait is for a later op of the same lane,
// which has been launched as well: longer than needed, but never for ever. The host waits for
// nothing before `synchronise`.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

#include "fpdt/runtime/backend.h"

namespace fpdt::cuda {

// One event; without times it costs less.
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
  explicit Streams(const Program& program);  // which outlives them
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  [[nodiscard]] cudaStream_t of(std::int32_t lane) const {
    return lanes_[static_cast<std::size_t>(lane)].stream;
  }

  // Around the launch of an op: its waits before, its completion behind.
  void before(const Launch& launch);
  void after(const Launch& launch);

  // Waits for all lanes, notes the times of the ops that asked for them, and begins anew. Throws
  // what failed.
  void synchronise();

 private:
  struct Lane {
    [[nodiscard]] const DeviceEvent& event(std::int64_t at) const {
      return ring[static_cast<std::size_t>(at) % ring.size()];
    }
    cudaStream_t stream = nullptr;
    std::vector<DeviceEvent> ring;  // by position
    std::int64_t position = 0;      // ops launched in this step
  };
  // An op whose time is asked for: events 2*i and 2*i + 1 of timers_.
  struct Timed {
    Interval* interval = nullptr;
    std::int32_t lane = 0;
  };

  void begin_times();
  void note_times();

  std::vector<Lane> lanes_;
  std::vector<const Op*> awaited_;  // sorted
  DeviceEvent origin_;              // of the step's times
  std::int64_t origin_time_ = 0;    // what the host's clock said then
  std::vector<DeviceEvent> timers_;
  std::vector<Timed> timed_;
};

}  // namespace fpdt::cuda
