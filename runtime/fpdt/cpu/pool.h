// A small pool of threads that share the tasks of one op.
//
// Tasks are numbered, and any thread may run any of them. So a kernel must cut its work into tasks
// whose size does not depend on the number of threads, and no two tasks may write the same element.
// Then the result has the same bits for every pool size. The calling thread works too: a pool of
// size 1 has no other thread. The pool uses only mutex, condition variable and atomics, so that
// ThreadSanitizer sees everything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace fpdt {

// The argument of for_each: a borrowed callable in two words, without allocation. `worker` < size()
// names the thread, for its scratch memory.
class TaskRef {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, TaskRef>>>
  TaskRef(F&& callable)  // implicit: a parameter type for lambdas
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, std::int64_t task, std::int32_t worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(task, worker);
        }) {}
  void operator()(std::int64_t task, std::int32_t worker) const { call_(object_, task, worker); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int32_t);
};

class Pool {
 public:
  explicit Pool(std::int32_t size);  // >= 1, the caller included
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(threads_.size()) + 1; }

  // Calls task(i, worker) for every i in [0, count) and returns when all are done. Tasks must not
  // throw. One caller at a time.
  void for_each(std::int64_t count, TaskRef task);

 private:
  void stop();
  void work(std::int32_t worker);
  void take_tasks(std::int32_t worker);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  std::uint64_t round_ = 0;  // guarded by mutex_, as are the next three
  std::int32_t busy_ = 0;    // threads that have not left the round
  bool stopping_ = false;
  const TaskRef* task_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace fpdt
