// Sleeps and wakes by Linux's futex (futex(2)).
#include "fpdt/cpu/counter.h"

#include <limits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace fpdt {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

std::uint32_t Counter::await_longer(std::uint32_t number, int spins) {
  for (;;) {
    std::uint32_t word = word_.load(std::memory_order_acquire);
    if (reached(word, number)) return word >> 1;
    if (spins > 0) {
      --spins;
      pause();
      continue;
    }
    const std::uint32_t sleeping = word | kSleeping;
    if (word != sleeping &&
        !word_.compare_exchange_strong(word, sleeping, std::memory_order_relaxed)) {
      continue;
    }
    // Returns at once if the word has changed. Whatever the reason for a return, the loop checks
    // again.
    syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, sleeping, nullptr, nullptr, 0);
  }
}

void Counter::wake() {
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr,
          0);
}

}  // namespace fpdt
