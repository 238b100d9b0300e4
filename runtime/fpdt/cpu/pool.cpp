// In a round, the caller publishes a task under the mutex, every thread takes numbers from one
// counter until they run out, and the last to leave wakes the caller.
#include "fpdt/cpu/pool.h"

#include "fpdt/base/assert.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {

Pool::Pool(std::int32_t size) {
  FPDT_ASSERT(size >= 1);
  threads_.reserve(static_cast<std::size_t>(size - 1));
  try {
    for (std::int32_t worker = 1; worker < size; ++worker) {
      threads_.push_back(start_thread([this, worker] { work(worker); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::for_each(std::int64_t count, TaskRef task) {
  if (threads_.empty() || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    FPDT_ASSERT(busy_ == 0);
    task_ = &task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<std::int32_t>(threads_.size());
    ++round_;
  }
  start_.notify_all();
  take_tasks(0);
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void Pool::work(std::int32_t worker) {
  std::uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    lock.unlock();
    take_tasks(worker);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

// task_ and count_ do not change until every thread has left the round.
void Pool::take_tasks(std::int32_t worker) {
  while (true) {
    const std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= count_) return;
    (*task_)(i, worker);
  }
}

}  // namespace fpdt
