// CUDA's runtime on the host, as far as the backend uses it. It tests the backend itself, with its
// streams, events, marks, copies and messages, where there is no GPU.
//
// Streams only queue. A call that waits for one runs the tasks queued on all streams, of all ranks:
// again and again the head of a stream whose wait is over, drawn by a seed. So orders occur that a
// GPU might choose and no test expects. Kernels are the emulator's. Memory of the GPUs is the
// host's, begins as NaN, and is limited.
//
// A copy from memory that is not pinned returns before it has reached the device; it does later, as
// if on a stream that others do not wait for. Nothing is copied over the border of two pinned
// ranges.
//
// There may be several GPUs. Everything that is created belongs to the GPU that the thread has
// chosen, and must be used with that one chosen; a kernel may only be given memory of its own GPU,
// and of those to which that has access. Whoever breaks these rules ends the program, with a
// message that begins with "wrong use of CUDA". CUDA itself lets some of it pass.
#pragma once

#include <cstdint>
#include <driver_types.h>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "queue.h"

namespace fpdt::fake {

// What the machine has, and which calls fail.
struct Machine {
  std::uint64_t seed = 1;
  std::int64_t memory = std::int64_t{1} << 30;  // of each GPU
  cudaError_t count_status = cudaSuccess;       // what cudaGetDeviceCount returns
  int devices = 1;
  std::vector<std::string> models = {};  // of the GPUs; a GPU without one is of a common model
  std::set<std::pair<int, int>> no_peers = {};  // {reader, owner}: the one can have no access
  int driver = 13000;
  int major = 9, minor = 0;
  cudaError_t pin_status = cudaSuccess;
  bool own_clock = false;  // of events: time stands still except for `pass`
  // Launches that a stream queues; another one waits, and so does every question about an event of
  // its GPU. 0: no limit.
  std::size_t queue = 0;
  std::int64_t leak = 0;  // bytes that somebody takes between two questions about free memory
};
// GPUs are untouched again, and without access to each other.
void set(const Machine& machine);

// From now on, questions about the memory of GPUs fail so.
void fall_ill(cudaError_t status);

// Called by a task: advances the machine's own clock.
void pass(double seconds);

// Bytes of device memory in use, of all GPUs or of one, and the number of pinned ranges.
std::int64_t allocated();
std::int64_t allocated(int gpu);
std::int64_t allocations();  // number of allocations so far
std::int64_t pinned_ranges();
// Number of existing events, and of calls of cudaFuncSetAttribute so far.
std::int64_t events();
std::int64_t attribute_calls();

// Lets launches that wait for room go on, now and later.
void lift_queue_limit();

// The GPUs on which a context was opened.
std::set<int> touched();

// Runs a task on the stream, in its turn. `given`: what the task reads and writes is among it.
void enqueue(cudaStream_t stream, const emulator::Given& given, std::function<void()> task);
// The same, when it is the task's turn and it is ready. No two tasks and no `ready` run at a time.
void enqueue_when(cudaStream_t stream, const emulator::Given& given, std::function<bool()> ready,
                  std::function<void()> task);
// Nothing else happens on the machine while it is held.
[[nodiscard]] std::unique_lock<std::recursive_mutex> hold();
// Runs tasks until `done`; an error after two minutes.
cudaError_t run_until(const std::function<bool()>& done);

}  // namespace fpdt::fake
