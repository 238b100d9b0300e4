// Lets launches wait for their turn on a stream. Compatible with CUDA's own headers.
#pragma once

#include <functional>
#include <vector>

struct CUstream_st;

namespace fpdt::emulator {

// What a launch was given, word by word. Some are addresses that its kernel reads or writes.
using Given = std::vector<const void*>;

// A machine that queues launches of a stream for later, and may have several GPUs. Without one they
// run at once. Applies to all host threads.
struct Host {
  void (*enqueue)(CUstream_st* stream, const Given& given, std::function<void()> task) = nullptr;
  int (*current_gpu)() = nullptr;  // of this thread
};
void use(const Host& host);  // must outlive all launches
void submit(CUstream_st* stream, const Given& given, std::function<void()> task);
int current_gpu();

}  // namespace fpdt::emulator
