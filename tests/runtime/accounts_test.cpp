// Ranges of bytes. executor_test.cpp tests what the accounts find in runs.
#include "fpdt/runtime/accounts.h"

#include <gtest/gtest.h>

#include "fpdt/runtime/arena.h"

#include "tiny.h"

namespace fpdt {
namespace {

TEST(ByteRanges, MergeWhatOverlapsOrTouches) {
  EXPECT_EQ(merged({{20, 30}, {0, 10}, {5, 12}, {30, 31}, {40, 40}}),
            (ByteRanges{{0, 12}, {20, 31}}));
  EXPECT_EQ(total({{0, 12}, {20, 31}}), Bytes{23});
  EXPECT_TRUE(merged({}).empty());
}

TEST(ByteRanges, WithoutOthers) {
  EXPECT_EQ(without({{0, 10}, {20, 30}, {40, 50}}, {{2, 4}, {8, 22}, {25, 26}, {40, 50}}),
            (ByteRanges{{0, 2}, {4, 8}, {22, 25}, {26, 30}}));
  EXPECT_EQ(without({{5, 9}}, {{0, 5}, {9, 12}}), (ByteRanges{{5, 9}}));
  EXPECT_EQ(without({{1, 3}, {5, 9}}, {{0, 12}}), ByteRanges{});
  EXPECT_EQ(without({}, {{0, 12}}), ByteRanges{});
}

TEST(ByteRanges, WidenToPages) {
  const std::int64_t page = page_bytes().value;
  EXPECT_EQ(whole_pages({{1, 2}, {page - 1, page + 1}, {3 * page, 4 * page}}),
            (ByteRanges{{0, 2 * page}, {3 * page, 4 * page}}));
}

TEST(ByteRanges, OfAScheduleFollowFromItsOperands) {
  Pipeline pipeline{.chunks = 3, .rows = 2, .width = 16};  // slots: 128 bytes, 256 apart
  const VerifiedSchedule schedule = pipeline.build();
  const Program program(schedule.schedule());
  EXPECT_EQ(written_bytes(program, schedule.schedule().train, MemorySpace::host_pinned),
            (ByteRanges{{0, 128}, {256, 384}, {512, 640}}));
  EXPECT_EQ(filled_bytes(schedule.schedule(), MemorySpace::host),
            (ByteRanges{{0, 128}, {256, 384}, {512, 640}}));
  EXPECT_EQ(filled_bytes(schedule.schedule(), MemorySpace::device), (ByteRanges{{0, 16 * 16 * 4}}));
}

}  // namespace
}  // namespace fpdt
