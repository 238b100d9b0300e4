// Ends the process when a call that can only block does not return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace fpdt {

// Writes one line to standard error.
void say_mpi(std::string_view text);

// While it lives, the process has `limit` left: then it says `text` and ends with `code`, without
// destructors and exit handlers, which could block too.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::string text, int code);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace fpdt
