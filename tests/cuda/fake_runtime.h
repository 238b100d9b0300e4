// CUDA's runtime on the host, as far as the backend uses it. It tests the backend itself, with its
// streams, events, marks, copies and messages, where there is no GPU.
//
// Streams only queue. A call that waits for one runs the tasks queued on all streams, of all ranks:
// again and again the head of a stream whose wait is over, drawn by a seed. So orders occur that a
// GPU might choose and no test expects. Kernels are the emulator's. Memory of the "device" is the
// host's, begins as NaN, and is limited.
#pragma once

#include <cstdint>
#include <driver_types.h>
#include <functional>
#include <string>

namespace fpdt::fake {

// What the machine has, and which calls fail.
struct Machine {
  std::uint64_t seed = 1;
  std::int64_t memory = std::int64_t{1} << 30;
  cudaError_t count_status = cudaSuccess;  // what cudaGetDeviceCount returns
  int devices = 1;
  int driver = 13000;
  int major = 9, minor = 0;
  cudaError_t pin_status = cudaSuccess;
  bool own_clock = false;  // of events: time stands still except for `pass`
};
void set(const Machine& machine);

// Called by a task: advances the machine's own clock.
void pass(double seconds);

// Bytes of device memory in use, and the number of pinned ranges.
std::int64_t allocated();
std::int64_t allocations();  // number of allocations so far
std::int64_t pinned_ranges();
// Number of existing events, and of calls of cudaFuncSetAttribute so far.
std::int64_t events();
std::int64_t attribute_calls();

// Runs a task on the stream, in its turn.
void enqueue(cudaStream_t stream, std::function<void()> task);

}  // namespace fpdt::fake
