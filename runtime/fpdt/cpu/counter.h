// A number that one thread advances and others wait for.
//
// The lowest bit of the word says that a thread sleeps. A waiter sets it and sleeps while the word
// stays unchanged. The advancing thread exchanges the word and, if the old one had the bit, wakes
// the sleepers. Everything happens on one atomic: only `advance` releases and only `await`
// acquires. So a waiter sees everything before the number, and nobody synchronises with a waiter.
// (std::atomic::wait counts its waiters in shared counters, through which ThreadSanitizer would see
// order between threads that have none.)
#pragma once

#include <atomic>
#include <cstdint>

namespace fpdt {

class Counter {
 public:
  // Numbers count up from 0 and wrap around at 2^31; only those less than 2^30 apart are compared.
  static constexpr std::uint32_t kMask = 0x7FFFFFFFU;

  // Must be called by one thread, with ascending numbers.
  void advance(std::uint32_t number) {
    const std::uint32_t before = word_.exchange(number << 1, std::memory_order_release);
    if ((before & kSleeping) != 0) wake();
  }

  // Waits until the number is at least `number`, and returns the current one. Checks `spins` times
  // before it sleeps.
  std::uint32_t await(std::uint32_t number, int spins) {
    const std::uint32_t word = word_.load(std::memory_order_acquire);
    return reached(word, number) ? word >> 1 : await_longer(number, spins);
  }

 private:
  static constexpr std::uint32_t kSleeping = 1;

  // Whether the distance from `number` up to the word's number is less than half the circle.
  static bool reached(std::uint32_t word, std::uint32_t number) {
    return (((word >> 1) - number) & kMask) < (kMask >> 1);
  }
  std::uint32_t await_longer(std::uint32_t number, int spins);
  void wake();

  std::atomic<std::uint32_t> word_{0};
};

}  // namespace fpdt
