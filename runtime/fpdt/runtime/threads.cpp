// The one place that starts threads.
#include "fpdt/runtime/threads.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw MemoryError(fmt::format(
        "no more threads can be started ({}); allow more (ulimit -u, ulimit -v), or use fewer "
        "--threads or ranks",
        error.code().message()));
  }
}

}  // namespace fpdt
