// A step allocates nothing on any of its threads. This program counts operator new.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/executor.h"

#include "tiny.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fpdt {
namespace {

TEST(ExecutorAllocation, AStepAllocatesNothing) {
  Pipeline pipeline{.ranks = 2};
  const VerifiedSchedule schedule = pipeline.build();
  std::atomic<std::int64_t> during{-1};
  const std::string record =
      testing::TempDir() + "allocation_test.flight." + std::to_string(getpid());
  FlightRecorder flight(record, {.lanes = std::ssize(Program(schedule.schedule()).lanes)});
  run_ranks(2, [&](Communicator& communicator) {
    CpuBackend backend(communicator, {.threads = 2});
    Executor executor(schedule, backend, communicator,
                      communicator.rank() == 0 ? &flight : nullptr);
    communicator.barrier();
    const std::int64_t before = allocations;
    communicator.barrier();  // no rank runs before all have counted
    for (int step = 0; step < 3; ++step) executor.run(schedule.schedule().train);
    communicator.barrier();
    if (communicator.rank() == 0) during = allocations - before;
    communicator.barrier();
  });
  EXPECT_EQ(during, 0);
  std::remove(record.c_str());
}

}  // namespace
}  // namespace fpdt
