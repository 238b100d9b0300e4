// Launches that wait for their turn on a stream. Goes together with CUDA's own headers.
#pragma once

#include <functional>

struct CUstream_st;

namespace fpdt::emulator {

// Who keeps launches on a stream for later; nobody: they run at once. For all threads of the host.
using Queue = void (*)(CUstream_st* stream, std::function<void()> task);
void set(Queue queue);
void submit(CUstream_st* stream, std::function<void()> task);

}  // namespace fpdt::emulator
