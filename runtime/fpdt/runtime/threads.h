// Starting a thread where the machine may refuse.
#pragma once

#include <functional>
#include <thread>

namespace fpdt {

// MemoryError when no more threads can be had. The caller ends those that it has started already.
std::thread start_thread(std::function<void()> work);

}  // namespace fpdt
