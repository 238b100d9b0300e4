// Starts a thread, or says that the machine refused it.
#pragma once

#include <functional>
#include <thread>

namespace fpdt {

// Throws MemoryError when no thread can be started. The caller must end those that it has started.
std::thread start_thread(std::function<void()> work);

}  // namespace fpdt
