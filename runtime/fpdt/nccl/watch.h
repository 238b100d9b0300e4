// Watches the collectives that the device has not finished.
//
// A thread asks the device which of them have begun and which have ended. The deadline of a
// collective starts when it begins: before that it waits for this rank's own work, which may take
// long. The thread also asks NCCL for errors. What it finds aborts all communicators, so that the
// streams drain and nobody waits for ever.
//
// A launch into a full queue waits inside the driver, and so may whoever asks about an event. So a
// second thread, which calls neither CUDA nor NCCL, sees that the first one gets its answers within
// the deadline, and ends the process if it does not. For the same reason nothing is asked or
// recorded under the mutex.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fpdt/cuda/streams.h"
#include "fpdt/nccl/comms.h"

namespace fpdt::nccl {

class Watch {
 public:
  // How many collectives of a lane may be launched and not finished. Beyond that a launch waits.
  static constexpr std::size_t kFlightsMost = 1024;

  // `lanes`: how many there are. `comms` must outlive this.
  Watch(Comms& comms, std::size_t lanes);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Creates the events of a lane. Call it before the lane's first collective.
  void prepare(std::size_t lane);
  // Call these around the launch of a collective. `what` names it in messages and stays valid.
  // `begin` throws PeerError after an abort.
  void begin(std::size_t lane, cudaStream_t stream, const std::string& what);
  void end(std::size_t lane, cudaStream_t stream);

 private:
  using Clock = AwakeClock;
  struct Flight {
    cuda::DeviceEvent begin{cuda::DeviceEvent::Times::no};
    cuda::DeviceEvent end{cuda::DeviceEvent::Times::no};
    const std::string* what = nullptr;
    std::optional<Clock::time_point> begun;  // when the thread saw that it had
  };
  struct Lane {
    std::vector<Flight> ring;
    std::size_t first = 0, count = 0;  // those launched and not known to be finished
  };

  void run();
  void guard();
  // The oldest collective of a lane that is not known to be finished; null: there is none.
  Flight* oldest(Lane& lane);
  // Forgets it.
  void forget(Lane& lane);
  // Forgets the collectives of a lane that have ended. Returns the one that is late.
  const Flight* advance(Lane& lane);
  std::optional<Error> look();

  Comms& comms_;
  std::mutex mutex_;  // guards the rest, except the flights that have an owner
  std::condition_variable stopped_;
  bool stop_ = false;
  std::optional<Clock::time_point> asking_;  // since when the thread waits for answers
  // Flights from `first` on, `count` of them, belong to the thread; the others to the rank.
  std::vector<Lane> lanes_;
  std::thread thread_, guard_;
};

}  // namespace fpdt::nccl
