// A steady clock for deadlines, which stands still while this process is stopped.
//
// A job that is suspended (SIGSTOP, scontrol suspend, a paused virtual machine) and continued finds
// its deadlines where it left them: that no peer moved while nobody ran says nothing about peers.
#pragma once

#include <chrono>

namespace fpdt {

struct AwakeClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<AwakeClock>;
  static constexpr bool is_steady = true;

  // The time since the last call, of any thread, counts as kStride at most. So a thread that waits
  // asks more often.
  static time_point now();
  static constexpr std::chrono::milliseconds kStride{1000};
};

}  // namespace fpdt
