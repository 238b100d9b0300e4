// The state of the fake runtime: streams with their tasks, events, memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fake_runtime.h"

namespace fpdt::fake {

// A recorded point of a stream, reused many times.
struct Point {
  int gpu = 0;
  std::uint64_t taken = 0;
  std::uint64_t reached = 0;
  std::int64_t time = 0;
};

struct Task {
  std::function<bool()> ready;  // null: always
  std::function<void()> run;
};

struct Lane {
  int gpu = 0;
  std::deque<Task> tasks;
};

struct Allocation {
  int gpu = 0;
  std::int64_t bytes = 0;
};

// Prints a line and aborts.
[[noreturn]] inline void refuse(const char* call, const std::string& why) {
  fmt::print(stderr, "wrong use of CUDA: {}: {}\n", call, why);
  std::abort();
}

// All state, under one lock: only one task runs at a time.
struct World {
  std::recursive_mutex mutex;
  Machine machine;
  std::map<cudaStream_t, Lane> streams;
  std::map<cudaEvent_t, std::unique_ptr<Point>> events;
  std::map<int, std::deque<Task>> unpinned;  // copies on their way to a GPU
  std::map<int, std::mutex> drivers;         // of each GPU: held by a launch that waits for room
  std::map<const void*, Allocation> device;
  std::map<const std::byte*, std::size_t> pinned;
  std::set<int> contexts;
  std::set<std::pair<int, int>> peers;  // {reader, owner}
  std::int64_t allocations = 0;
  std::int64_t leaked = 0;
  cudaError_t sick = cudaSuccess;
  std::int64_t attribute_calls = 0;
  std::uintptr_t next_name = 0;
  std::uint64_t random = 1;
  std::int64_t passed = 0;  // ns

  [[nodiscard]] std::int64_t now() const {
    if (machine.own_clock) return passed;
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  [[nodiscard]] std::int64_t allocated(int gpu) const {
    std::int64_t sum = 0;
    for (const auto& [place, one] : device) sum += one.gpu == gpu ? one.bytes : 0;
    return sum;
  }
  // The GPU whose memory holds the address; -1: none.
  [[nodiscard]] int owner(const void* address) const {
    auto place = device.upper_bound(address);
    if (place == device.begin()) return -1;
    const auto& [begin, one] = *--place;
    const auto* const end = static_cast<const std::byte*>(begin) + one.bytes;
    return static_cast<const std::byte*>(address) < end ? one.gpu : -1;
  }
  // Whether a host's range is pinned. One that is in part, or in several ranges, has no place in a
  // copy.
  [[nodiscard]] bool is_pinned(const void* address, std::size_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(address);
    const auto after = pinned.lower_bound(begin + bytes);
    if (after == pinned.begin()) return false;
    const auto& [first, size] = *std::prev(after);
    if (first + size <= begin) return false;
    if (begin < first || begin + bytes > first + size) {
      refuse("a copy", "it crosses the border of a pinned range");
    }
    return true;
  }
  void arrive(std::deque<Task>& copies) {
    for (; !copies.empty(); copies.pop_front()) copies.front().run();
  }
  // Runs one task of some stream; false if none may run.
  bool run_one() {
    std::vector<std::deque<Task>*> ready;
    for (auto& [gpu, copies] : unpinned) {
      if (!copies.empty()) ready.push_back(&copies);
    }
    for (auto& [name, lane] : streams) {
      if (lane.tasks.empty()) continue;
      const Task& first = lane.tasks.front();
      if (first.ready == nullptr || first.ready()) ready.push_back(&lane.tasks);
    }
    if (ready.empty()) return false;
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    std::deque<Task>& next = *ready[(random >> 33) % ready.size()];
    const Task task = std::move(next.front());
    next.pop_front();
    task.run();
    return true;
  }
};

}  // namespace fpdt::fake
