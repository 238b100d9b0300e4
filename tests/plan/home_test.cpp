// Where chunks are found: kept on the device, still in a ring, or fetched.
#include "fpdt/plan/lowering/home.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

HomeShape four_chunks(std::int64_t kept) {
  HomeShape shape;
  shape.name = "kv";
  shape.width = 4;
  shape.chunks = 4;
  shape.rows = 8;
  shape.last_rows = 6;
  shape.kept = kept;
  shape.contiguous = true;
  return shape;
}

TEST(Home, FetchesWhatWasSpilled) {
  Builder builder;
  Home home(builder, four_chunks(0));
  builder.begin_block("block");
  const Operand fresh = home.produce(builder, Version::plus(0), 3);
  EXPECT_EQ(fresh.rows, 6);
  home.spill(builder, Version::plus(0), 3, fresh, LaneKind::d2h);
  const Operand fetched =
      home.fetch(builder, Version::plus(0), 3, Home::Reuse::none, LaneKind::h2d);
  EXPECT_NE(fetched.buffer, fresh.buffer);
  ASSERT_EQ(builder.schedule.blocks.back().ops.size(), 2U);
  EXPECT_EQ(builder.schedule.blocks.back().ops[1].lane.kind, LaneKind::h2d);
}

TEST(Home, ReusesTheRingWhileItHolds) {
  Builder builder;
  Home home(builder, four_chunks(0));
  builder.begin_block("block");
  const Operand zero = home.produce(builder, Version::plus(0), 0);
  home.produce(builder, Version::plus(0), 1);
  EXPECT_EQ(home.fetch(builder, Version::plus(0), 0, Home::Reuse::ring, LaneKind::h2d), zero);
  home.produce(builder, Version::plus(0), 2);  // two slots, so chunk 0 is overwritten
  EXPECT_NE(home.fetch(builder, Version::plus(0), 0, Home::Reuse::ring, LaneKind::h2d), zero);
}

// In a ring that others share, repeated chunks and stored ones each have a place.
TEST(Home, SharesARing) {
  Builder builder;
  HomeShape shape = four_chunks(1);
  shape.contiguous = false;
  const BufferIndex ring = add_host_ring(builder, shape, 7);
  shape.shared = {ring, 2, Version::at(14, 0, 42, -7, 2), Version::at(6, -1, 42)};
  Home home(builder, shape);
  builder.begin_block("block");
  const auto spilled = [&](const Instance& instance, std::int64_t chunk) {
    const Operand value = home.produce(builder, instance, chunk);
    home.spill(builder, instance, chunk, value, LaneKind::d2h);
    return std::get<Copy>(builder.schedule.blocks.back().ops.back().body).target.operand;
  };
  Instance layer = Version::at(0, 1);
  const Operand repeated = spilled(layer, 1), stored = spilled(layer, 2);
  EXPECT_EQ(repeated.buffer, ring);
  EXPECT_EQ(stored.buffer, ring);
  EXPECT_EQ(builder.at(ring).name, "kv_host");
  EXPECT_EQ(stored.version, Version::at(6, -1, 42));
  EXPECT_EQ(repeated.version, Version::at(15, 0, 42, -7, 2));
  layer.host = Version::at(100);
  EXPECT_EQ(spilled(layer, 2).version, Version::at(102));
}

TEST(Home, KeepsTheLastChunks) {
  Builder builder;
  Home home(builder, four_chunks(2));
  EXPECT_EQ(home.first_kept(), 2);
  builder.begin_block("block");
  const Operand both = home.kept_span(Version::plus(0), 2, 3);
  EXPECT_EQ(both.row_first, 0);
  EXPECT_EQ(both.rows, 14);
  const Operand last = home.fetch(builder, Version::plus(0), 3, Home::Reuse::none, LaneKind::h2d);
  EXPECT_EQ(last.row_first, 8);
  EXPECT_EQ(last.rows, 6);
  EXPECT_TRUE(builder.schedule.blocks.back().ops.empty());
}

}  // namespace
}  // namespace fpdt
