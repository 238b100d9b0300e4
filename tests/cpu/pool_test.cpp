// Every task runs exactly once, for every count and size; rounds follow each other.
#include "fpdt/cpu/pool.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(Pool, RunsEveryTaskOnce) {
  for (const std::int32_t size : {1, 2, 3, 5}) {
    Pool pool(size);
    EXPECT_EQ(pool.size(), size);
    for (const std::int64_t count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      pool.for_each(count, [&](std::int64_t task, std::int32_t worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, size);
        ++runs[static_cast<std::size_t>(task)];
      });
      for (const std::atomic<int>& run : runs) EXPECT_EQ(run.load(), 1);
    }
  }
}

// Plain memory written in one round is read in the next by any thread. ThreadSanitizer checks the
// order.
TEST(Pool, OrdersRounds) {
  Pool pool(3);
  std::vector<std::int64_t> values(64, 0);
  for (int round = 0; round < 200; ++round) {
    pool.for_each(64, [&](std::int64_t task, std::int32_t) {
      const std::size_t i = static_cast<std::size_t>(task);
      const std::size_t other = (i + 1) % 64;
      if (round % 2 == 0) {
        values[i] += 1;
      } else {
        EXPECT_EQ(values[i], values[other]);
      }
    });
  }
  EXPECT_EQ(values[63], 100);
}

// A worker number names one thread at a time, so its scratch memory is its own.
TEST(Pool, WorkersDoNotOverlap) {
  Pool pool(3);
  std::vector<std::atomic<int>> inside(3);
  pool.for_each(300, [&](std::int64_t, std::int32_t worker) {
    EXPECT_EQ(inside[static_cast<std::size_t>(worker)].fetch_add(1), 0);
    inside[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
}

}  // namespace
}  // namespace fpdt
