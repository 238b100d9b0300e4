// Lets launches wait for their turn on a stream. Compatible with CUDA's own headers.
#pragma once

#include <functional>

struct CUstream_st;

namespace fpdt::emulator {

// Queues launches of a stream for later. Without a queue they run at once. Applies to all host
// threads.
using Queue = void (*)(CUstream_st* stream, std::function<void()> task);
void set(Queue queue);
void submit(CUstream_st* stream, std::function<void()> task);

}  // namespace fpdt::emulator
