// A thread that sleeps, and is usually woken early.
#include "fpdt/mpi/watchdog.h"

#include <cstdio>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "fpdt/runtime/threads.h"

namespace fpdt {

void say_mpi(std::string_view text) {
  const std::string line = fmt::format("fpdt: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

Watchdog::Watchdog(std::chrono::milliseconds limit, std::string text, int code)
    : thread_(start_thread([this, limit, text = std::move(text), code] {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, limit, [this] { return done_; })) return;
        say_mpi(text);
        ::_exit(code);
      })) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace fpdt
