// CUDA's runtime as far as the backend uses it, on the host: so that the backend itself, its
// streams, events, marks, copies and messages, is tested where there is no GPU.
//
// Streams only queue. Who waits for one runs what is queued on all of them, of all ranks, again and
// again the head of a stream whose wait is over, drawn by a seed: orders that a GPU might choose
// and no test expects come up too. Kernels are those of the emulator. Memory of the "device" is
// the host's, begins as NaN, and is limited.
#pragma once

#include <cstdint>
#include <driver_types.h>
#include <functional>
#include <string>

namespace fpdt::fake {

// What the machine has, and what fails.
struct Machine {
  std::uint64_t seed = 1;
  std::int64_t memory = std::int64_t{1} << 30;
  cudaError_t count_status = cudaSuccess;  // of cudaGetDeviceCount
  int devices = 1;
  int driver = 13000;
  int major = 9, minor = 0;
  cudaError_t pin_status = cudaSuccess;
  bool own_clock = false;  // of events: it stands still but for `pass`
};
void set(const Machine& machine);

// From a task: so much time passes on the machine's own clock.
void pass(double seconds);

// Device memory taken and not given back, and pinned ranges.
std::int64_t allocated();
std::int64_t allocations();  // ever
std::int64_t pinned_ranges();
// Events that there are, and calls of cudaFuncSetAttribute ever.
std::int64_t events();
std::int64_t attribute_calls();

// Runs on the stream, in its turn.
void enqueue(cudaStream_t stream, std::function<void()> task);

}  // namespace fpdt::fake
