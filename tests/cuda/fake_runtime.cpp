// Implements CUDA's functions with queues of closures.
#include "fake_runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "queue.h"

namespace fpdt::fake {
namespace {

// A recorded point of a stream, reused many times.
struct Point {
  std::uint64_t taken = 0;
  std::uint64_t reached = 0;
  std::int64_t time = 0;
};

struct Task {
  std::function<bool()> ready;  // null: always
  std::function<void()> run;
};

// All state, under one lock: only one task runs at a time.
struct World {
  std::recursive_mutex mutex;
  Machine machine;
  std::map<cudaStream_t, std::deque<Task>> streams;
  std::map<cudaEvent_t, std::unique_ptr<Point>> events;
  std::map<void*, std::int64_t> device;
  std::set<void*> pinned;
  std::int64_t allocations = 0;
  std::int64_t attribute_calls = 0;
  std::uintptr_t next_name = 0;
  std::uint64_t random = 1;
  std::int64_t passed = 0;  // ns

  [[nodiscard]] std::int64_t now() const {
    if (machine.own_clock) return passed;
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  [[nodiscard]] std::int64_t allocated() const {
    std::int64_t sum = 0;
    for (const auto& [place, bytes] : device) sum += bytes;
    return sum;
  }
  // Runs one task of some stream; false if none may run.
  bool run_one() {
    std::vector<std::deque<Task>*> ready;
    for (auto& [name, tasks] : streams) {
      if (tasks.empty()) continue;
      if (tasks.front().ready == nullptr || tasks.front().ready()) ready.push_back(&tasks);
    }
    if (ready.empty()) return false;
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    std::deque<Task>& chosen = *ready[(random >> 33) % ready.size()];
    const Task task = std::move(chosen.front());
    chosen.pop_front();
    task.run();
    return true;
  }
};

World& world() {
  static World one;
  return one;
}

// Runs tasks until `done`. Other ranks may still have to queue some of them.
cudaError_t run_until(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  for (;;) {
    {
      const std::lock_guard lock(world().mutex);
      if (done()) return cudaSuccess;
      if (world().run_one()) continue;
    }
    if (std::chrono::steady_clock::now() > deadline) return cudaErrorLaunchTimeout;
    std::this_thread::yield();
  }
}

template <class Name>
Name new_name() {
  return reinterpret_cast<Name>(++world().next_name);
}

}  // namespace

void set(const Machine& machine) {
  const std::lock_guard lock(world().mutex);
  world().machine = machine;
  world().random = machine.seed;
  emulator::set(enqueue);
}

void pass(double seconds) {
  const std::lock_guard lock(world().mutex);
  world().passed += static_cast<std::int64_t>(seconds * 1e9);
}

std::int64_t allocated() {
  const std::lock_guard lock(world().mutex);
  return world().allocated();
}
std::int64_t allocations() {
  const std::lock_guard lock(world().mutex);
  return world().allocations;
}
std::int64_t pinned_ranges() {
  const std::lock_guard lock(world().mutex);
  return std::ssize(world().pinned);
}

std::int64_t events() {
  const std::lock_guard lock(world().mutex);
  return std::ssize(world().events);
}
std::int64_t attribute_calls() {
  const std::lock_guard lock(world().mutex);
  return world().attribute_calls;
}

void enqueue(cudaStream_t stream, std::function<void()> task) {
  const std::lock_guard lock(world().mutex);
  world().streams.at(stream).push_back({nullptr, std::move(task)});
}

}  // namespace fpdt::fake

using fpdt::fake::Point;
using fpdt::fake::world;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = world().machine.devices;
  return world().machine.count_status;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = world().machine.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a GPU of the tests");
  properties->major = world().machine.major;
  properties->minor = world().machine.minor;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int, int) {
  std::strcpy(text, "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = -1;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  const std::lock_guard lock(world().mutex);
  ++world().attribute_calls;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the tests"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheTests"; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(world().mutex);
  *total = static_cast<std::size_t>(world().machine.memory);
  *free = *total - static_cast<std::size_t>(world().allocated());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** place, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  const auto size = static_cast<std::int64_t>(bytes);
  if (world().allocated() + size > world().machine.memory) return cudaErrorMemoryAllocation;
  *place = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*place, 0xFF, bytes);
  world().device[*place] = size;
  ++world().allocations;
  return cudaSuccess;
}
cudaError_t cudaFree(void* place) {
  const std::lock_guard lock(world().mutex);
  if (world().device.erase(place) == 0) return cudaErrorInvalidValue;
  std::free(place);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* place, std::size_t, unsigned) {
  const std::lock_guard lock(world().mutex);
  if (world().machine.pin_status == cudaSuccess) world().pinned.insert(place);
  return world().machine.pin_status;
}
cudaError_t cudaHostUnregister(void* place) {
  const std::lock_guard lock(world().mutex);
  return world().pinned.erase(place) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const std::lock_guard lock(world().mutex);
  *stream = fpdt::fake::new_name<cudaStream_t>();
  world().streams[*stream];
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  return world().streams.erase(stream) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) return cudaSuccess;
  return fpdt::fake::run_until([stream] { return world().streams.at(stream).empty(); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(world().mutex);
  const Point& point = *world().events.at(event);
  const std::uint64_t turn = point.taken;
  world().streams.at(stream).push_back({[&point, turn] { return point.reached >= turn; }, [] {}});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(world().mutex);
  *event = fpdt::fake::new_name<cudaEvent_t>();
  world().events[*event] = std::make_unique<Point>();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(world().mutex);
  return world().events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  Point& point = *world().events.at(event);
  const std::uint64_t turn = ++point.taken;
  world().streams.at(stream).push_back({nullptr, [&point, turn] {
                                          point.reached = turn;
                                          point.time = world().now();
                                        }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Point& point = *world().events.at(event);
  return fpdt::fake::run_until([&point] { return point.reached == point.taken; });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(world().mutex);
  const Point& a = *world().events.at(from);
  const Point& b = *world().events.at(to);
  if (a.reached != a.taken || b.reached != b.taken) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(b.time - a.time) * 1e-6);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(target, source, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  fpdt::fake::enqueue(stream, [=] { std::memcpy(target, source, bytes); });
  return cudaSuccess;
}

}  // extern "C"
