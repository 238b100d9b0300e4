// Implements CUDA's functions with queues of closures.
#include "fake_runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "fake_world.h"

namespace fpdt::fake {
namespace {

// The GPU that this thread has chosen; -1: none, where CUDA would take GPU 0 and open its context.
thread_local int chosen = -1;

// Of an H100, and of each kernel.
constexpr int kSharedMost = 227 << 10, kStaticShared = 768;

World& world() {
  static World one;
  return one;
}

template <class Name>
Name new_name() {
  return reinterpret_cast<Name>(++world().next_name);
}

// The GPU for which the thread calls; it must have chosen one.
int here(const char* call) {
  if (chosen < 0) refuse(call, "this thread has chosen no GPU");
  return chosen;
}

// Something that belongs to `gpu` is used.
void require_here(const char* call, int gpu) {
  if (here(call) == gpu) return;
  refuse(call, fmt::format("GPU {} is chosen for what belongs to GPU {}", chosen, gpu));
}

// A host's copy uses memory at the address.
void require_own(const char* call, const void* address) {
  const int owner = world().owner(address);
  if (owner >= 0) require_here(call, owner);
}

// A task of `reader` is given the address.
void require_access(int reader, const void* address) {
  const int owner = world().owner(address);
  if (owner < 0 || owner == reader || world().peers.contains({reader, owner})) return;
  refuse("a launch", fmt::format("GPU {} has no access to the memory of GPU {}", reader, owner));
}

bool is_gpu(int index) { return index >= 0 && index < world().machine.devices; }

// A launch into a full queue waits inside the driver. Not for ever: a test would hang.
void wait_for_room(cudaStream_t stream) {
  std::unique_lock lock(world().mutex);
  if (world().machine.queue == 0) return;
  std::mutex& driver = world().drivers[world().streams.at(stream).gpu];
  lock.unlock();
  const std::lock_guard inside(driver);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (; std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
    lock.lock();
    if (world().streams.at(stream).tasks.size() < world().machine.queue) return;
    if (world().machine.queue == 0) return;
    world().run_one();
    lock.unlock();
  }
}

void launch(cudaStream_t stream, const emulator::Given& given, std::function<void()> task) {
  wait_for_room(stream);
  enqueue(stream, given, std::move(task));
}

constexpr emulator::Host kHost{launch, [] { return std::max(chosen, 0); }};

}  // namespace

void set(const Machine& machine) {
  const std::lock_guard lock(world().mutex);
  world().machine = machine;
  world().random = machine.seed;
  world().contexts.clear();
  world().peers.clear();
  world().unpinned.clear();
  world().leaked = 0;
  world().sick = cudaSuccess;
  emulator::use(kHost);
}

void fall_ill(cudaError_t status) {
  const std::lock_guard lock(world().mutex);
  world().sick = status;
}

void pass(double seconds) {
  const std::lock_guard lock(world().mutex);
  world().passed += static_cast<std::int64_t>(seconds * 1e9);
}

std::int64_t allocated() {
  const std::lock_guard lock(world().mutex);
  std::int64_t sum = 0;
  for (const auto& [place, one] : world().device) sum += one.bytes;
  return sum;
}
std::int64_t allocated(int gpu) {
  const std::lock_guard lock(world().mutex);
  return world().allocated(gpu);
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

void lift_queue_limit() {
  const std::lock_guard lock(world().mutex);
  world().machine.queue = 0;
}

std::set<int> touched() {
  const std::lock_guard lock(world().mutex);
  return world().contexts;
}

std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(world().mutex); }

void enqueue(cudaStream_t stream, const emulator::Given& given, std::function<void()> task) {
  enqueue_when(stream, given, nullptr, std::move(task));
}

void enqueue_when(cudaStream_t stream, const emulator::Given& given, std::function<bool()> ready,
                  std::function<void()> task) {
  const std::lock_guard lock(world().mutex);
  Lane& lane = world().streams.at(stream);
  require_here("a launch", lane.gpu);
  for (const void* const word : given) require_access(lane.gpu, word);
  lane.tasks.push_back({std::move(ready), std::move(task)});
}

// Other ranks may still have to queue some of the tasks.
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

}  // namespace fpdt::fake

using namespace fpdt::fake;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(world().mutex);
  *count = world().machine.devices;
  return world().machine.count_status;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().machine.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  const std::lock_guard lock(world().mutex);
  if (!is_gpu(index)) return cudaErrorInvalidDevice;
  *properties = {};
  const std::vector<std::string>& models = world().machine.models;
  const auto number = static_cast<std::size_t>(index);
  const std::string name = number < models.size() ? models[number] : "a GPU of the tests";
  name.copy(properties->name, sizeof properties->name - 1);
  properties->major = world().machine.major;
  properties->minor = world().machine.minor;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int index) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0",
                static_cast<unsigned>(index));
  return cudaSuccess;
}
// Each GPU is near the NUMA node of its number.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  *value = attribute == cudaDevAttrHostNumaId                     ? index
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? kSharedMost
                                                                  : -1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->sharedSizeBytes = kStaticShared;
  return cudaSuccess;
}
// Static memory counts.
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int bytes) {
  const std::lock_guard lock(world().mutex);
  here("cudaFuncSetAttribute");
  ++world().attribute_calls;
  return bytes + kStaticShared > kSharedMost ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  const std::lock_guard lock(world().mutex);
  if (!is_gpu(index)) return cudaErrorInvalidDevice;
  chosen = index;
  world().contexts.insert(index);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = std::max(chosen, 0);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int reader, int owner) {
  const std::lock_guard lock(world().mutex);
  if (!is_gpu(reader) || !is_gpu(owner)) return cudaErrorInvalidDevice;
  *can = reader != owner && !world().machine.no_peers.contains({reader, owner}) ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int owner, unsigned) {
  const std::lock_guard lock(world().mutex);
  const int reader = here("cudaDeviceEnablePeerAccess");
  if (!is_gpu(owner) || owner == reader) return cudaErrorInvalidDevice;
  if (world().machine.no_peers.contains({reader, owner})) return cudaErrorPeerAccessUnsupported;
  world().contexts.insert(owner);
  const bool added = world().peers.emplace(reader, owner).second;
  return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the tests"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheTests"; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(world().mutex);
  if (world().sick != cudaSuccess) return world().sick;
  *total = static_cast<std::size_t>(world().machine.memory);
  *free =
      *total - static_cast<std::size_t>(world().allocated(here("cudaMemGetInfo")) + world().leaked);
  world().leaked += world().machine.leak;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** place, std::size_t bytes) {
  const std::lock_guard lock(world().mutex);
  const int gpu = here("cudaMalloc");
  const auto size = static_cast<std::int64_t>(bytes);
  if (world().allocated(gpu) + size > world().machine.memory) return cudaErrorMemoryAllocation;
  *place = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*place, 0xFF, bytes);
  world().device[*place] = {gpu, size};
  ++world().allocations;
  return cudaSuccess;
}
cudaError_t cudaFree(void* place) {
  const std::lock_guard lock(world().mutex);
  require_own("cudaFree", place);
  for (auto& [gpu, copies] : world().unpinned) world().arrive(copies);
  if (world().device.erase(place) == 0) return cudaErrorInvalidValue;
  std::free(place);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* place, std::size_t bytes, unsigned) {
  const std::lock_guard lock(world().mutex);
  here("cudaHostRegister");
  if (world().machine.pin_status == cudaSuccess) {
    world().pinned[static_cast<const std::byte*>(place)] = bytes;
  }
  return world().machine.pin_status;
}
cudaError_t cudaHostUnregister(void* place) {
  const std::lock_guard lock(world().mutex);
  here("cudaHostUnregister");
  return world().pinned.erase(static_cast<const std::byte*>(place)) == 1
             ? cudaSuccess
             : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  here("cudaDeviceGetStreamPriorityRange");
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const std::lock_guard lock(world().mutex);
  *stream = new_name<cudaStream_t>();
  world().streams[*stream].gpu = here("cudaStreamCreateWithPriority");
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  require_here("cudaStreamDestroy", world().streams.at(stream).gpu);
  world().streams.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) {
    const std::lock_guard lock(world().mutex);
    world().arrive(world().unpinned[here("cudaStreamSynchronize")]);
    return cudaSuccess;
  }
  return run_until([stream] {
    const Lane& lane = world().streams.at(stream);
    require_here("cudaStreamSynchronize", lane.gpu);
    return lane.tasks.empty();
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(world().mutex);
  Lane& lane = world().streams.at(stream);
  require_here("cudaStreamWaitEvent", lane.gpu);  // the event may be another GPU's
  const Point& point = *world().events.at(event);
  const std::uint64_t turn = point.taken;
  lane.tasks.push_back({[&point, turn] { return point.reached >= turn; }, [] {}});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(world().mutex);
  *event = new_name<cudaEvent_t>();
  world().events[*event] = std::make_unique<Point>(Point{.gpu = here("cudaEventCreateWithFlags")});
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(world().mutex);
  require_here("cudaEventDestroy", world().events.at(event)->gpu);
  world().events.erase(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  wait_for_room(stream);
  const std::lock_guard lock(world().mutex);
  Lane& lane = world().streams.at(stream);
  require_here("cudaEventRecord", lane.gpu);
  Point& point = *world().events.at(event);
  if (point.gpu != lane.gpu) {
    refuse("cudaEventRecord",
           fmt::format("a stream of GPU {} records an event of GPU {}", lane.gpu, point.gpu));
  }
  const std::uint64_t turn = ++point.taken;
  lane.tasks.push_back({nullptr, [&point, turn] {
                          point.reached = turn;
                          point.time = world().now();
                        }});
  return cudaSuccess;
}
// Asking lets the GPU run on.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::unique_lock lock(world().mutex);
  std::mutex& driver = world().drivers[world().events.at(event)->gpu];
  lock.unlock();
  const std::lock_guard inside(driver);
  lock.lock();
  const Point& point = *world().events.at(event);
  require_here("cudaEventQuery", point.gpu);
  world().run_one();
  return point.reached == point.taken ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return run_until([event] {
    const Point& point = *world().events.at(event);
    require_here("cudaEventSynchronize", point.gpu);
    return point.reached == point.taken;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const std::lock_guard lock(world().mutex);
  const Point& a = *world().events.at(from);
  const Point& b = *world().events.at(to);
  for (const Point* const point : {&a, &b}) require_here("cudaEventElapsedTime", point->gpu);
  if (a.reached != a.taken || b.reached != b.taken) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(b.time - a.time) * 1e-6);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(world().mutex);
  const int gpu = here("cudaMemcpy");
  require_own("cudaMemcpy", target);
  require_own("cudaMemcpy", source);
  if (bytes == 0) return cudaSuccess;  // null is no mistake then
  std::deque<Task>& copies = world().unpinned[gpu];
  world().arrive(copies);
  static_cast<void>(world().is_pinned(target, bytes));
  const bool pinned = world().is_pinned(source, bytes);
  if (pinned || world().owner(target) < 0 || world().owner(source) >= 0) {
    std::memcpy(target, source, bytes);
    return cudaSuccess;
  }
  const auto* const from = static_cast<const std::byte*>(source);
  copies.push_back({nullptr, [target, staged = std::vector<std::byte>(from, from + bytes)] {
                      std::memcpy(target, staged.data(), staged.size());
                    }});
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  {
    const std::lock_guard lock(world().mutex);
    static_cast<void>(world().is_pinned(target, bytes));
    static_cast<void>(world().is_pinned(source, bytes));
  }
  launch(stream, {target, source}, [=] {
    if (bytes > 0) std::memcpy(target, source, bytes);  // of nothing, CUDA takes null pointers
  });
  return cudaSuccess;
}

}  // extern "C"
