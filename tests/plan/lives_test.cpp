// Which buffers may share bytes, and how many bytes are live.
#include "fpdt/plan/lives.h"

#include <gtest/gtest.h>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

BufferIndex ring(Builder& builder, const std::string& name, std::int64_t slots) {
  return builder.buffer({name,
                         MemorySpace::device,
                         Role::temporary,
                         Category::activations,
                         Dtype::f32,
                         {64},
                         slots,
                         kUnplaced});
}

// Produced on the compute lane and sent on another lane while compute goes on.
TEST(Lives, ALaneThatLagsKeepsItsBufferApart) {
  Builder builder;
  const BufferIndex sent = ring(builder, "sent", 1);
  const BufferIndex away = ring(builder, "away", 1);
  const BufferIndex next = ring(builder, "next", 1);
  builder.begin_block("all");
  const Operand value = builder.next(sent);
  builder.emit("make", LaneKind::compute, Fill{{value, false}, 1});
  builder.emit("send", LaneKind::d2h, Copy{value, {builder.next(away), false}});
  builder.emit("go_on", LaneKind::compute, Fill{{builder.next(next), false}, 2});
  builder.end_block();
  builder.call(builder.schedule.train, "all");
  depend(builder.schedule);
  const Conflicts conflicts(builder.schedule);
  EXPECT_TRUE(conflicts.apart(static_cast<std::size_t>(sent), static_cast<std::size_t>(next)));
  EXPECT_TRUE(conflicts.apart(static_cast<std::size_t>(sent), static_cast<std::size_t>(away)));
}

// In issue order only one of the two slots is live at a time.
TEST(Lives, CountsSlotsNotRings) {
  Builder builder;
  const BufferIndex a = ring(builder, "a", 2);
  builder.begin_block("all");
  for (const char* name : {"first", "second"}) {
    builder.emit(name, LaneKind::compute, Fill{{builder.next(a), false}, 0});
  }
  builder.end_block();
  builder.call(builder.schedule.train, "all");
  depend(builder.schedule);
  EXPECT_EQ(live_bytes(builder.schedule)[0], Bytes{256});
}

}  // namespace
}  // namespace fpdt
