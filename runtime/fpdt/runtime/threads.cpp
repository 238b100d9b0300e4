// The only place that starts threads.
#include "fpdt/runtime/threads.h"

#include <pthread.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {

namespace {

// Kernels keep blocks on the stack, and a thread's stack is as large as `ulimit -s` says. Raises it
// to at least the size that the C library uses when there is no limit.
void require_stack() {
  constexpr std::size_t kLeast = 2 << 20;
  pthread_attr_t usual;
  if (pthread_getattr_default_np(&usual) != 0) return;
  std::size_t size = kLeast;
  if (pthread_attr_getstacksize(&usual, &size) == 0 && size < kLeast &&
      pthread_attr_setstacksize(&usual, kLeast) == 0) {
    pthread_setattr_default_np(&usual);
  }
  pthread_attr_destroy(&usual);
}

}  // namespace

std::thread start_thread(std::function<void()> work) {
  require_stack();
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
