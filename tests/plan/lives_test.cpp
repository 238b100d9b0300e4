// Which buffers may share bytes, how many bytes are live, and how long copies keep buffers alive.
#include "fpdt/plan/lives.h"

#include <gtest/gtest.h>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/plan/phases.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

BufferIndex ring(Builder& builder, const std::string& name, std::int64_t slots) {
  return builder.add({name,
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
  depend(builder.finish());
  const Program program(builder.schedule);
  const Conflicts conflicts(program);
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
  depend(builder.finish());
  EXPECT_EQ(live_bytes(Program(builder.schedule))[0], Bytes{256});
}

Body filled(const Operand& operand) { return Fill{{operand, false}, 1}; }
Body copied(const Operand& from, const Operand& to) { return Copy{from, {to, false}}; }

// Whether a buffer is alive in each call that computes.
std::vector<bool> alive(Builder& builder, BufferIndex buffer) {
  const Program program(builder.schedule);
  std::vector<bool> found;
  for (const Phase& phase : phases(program, builder.schedule.train)) {
    found.push_back(phase.alive[static_cast<std::size_t>(buffer)]);
  }
  return found;
}

using Alive = std::vector<bool>;

// A block with one compute op.
void add_fill(Builder& builder, const std::string& block, BufferIndex buffer) {
  builder.begin_block(block);
  builder.emit(block, LaneKind::compute, filled(builder.next(buffer)));
  builder.end_block();
}

// One block makes and sends a value, three others compute. `waits`: the second of these reads what
// came.
void send(Builder& builder, bool waits) {
  const BufferIndex sent = ring(builder, "sent", 1);
  const BufferIndex away = ring(builder, "away", 1);
  const BufferIndex other = ring(builder, "other", 1);
  builder.begin_block("make");
  const Operand value = builder.next(sent);
  builder.emit("make", LaneKind::compute, filled(value));
  builder.emit("send", LaneKind::d2h, copied(value, {away, Version::at(0), 0, -1}));
  builder.end_block();
  for (const int i : {0, 1, 2}) {
    builder.begin_block("compute_" + std::to_string(i));
    if (waits && i == 1) {
      builder.emit("read", LaneKind::compute,
                   copied({away, Version::at(0), 0, -1}, builder.next(other)));
    } else {
      builder.emit("go_on", LaneKind::compute, filled(builder.next(other)));
    }
    builder.end_block();
  }
  for (const char* block : {"make", "compute_0", "compute_1", "compute_2"}) {
    builder.call(builder.schedule.train, block);
  }
  builder.finish();
}

TEST(Phases, ACopyLagsUntilSomethingWaitsForIt) {
  Builder nobody;
  send(nobody, false);
  EXPECT_EQ(alive(nobody, 0), (Alive{true, true, true, true}));
  Builder somebody;
  send(somebody, true);
  EXPECT_EQ(alive(somebody, 0), (Alive{true, true, true, false}));
}

// A fetch begins as soon as its slot is free: with two slots, before the value before it is used.
TEST(Phases, ACopyRunsAheadAsFarAsItsSlotsAllow) {
  for (const std::int64_t slots : {1, 2}) {
    Builder builder;
    const BufferIndex home = ring(builder, "home", 1);
    const BufferIndex fetched = ring(builder, "fetched", slots);
    const BufferIndex marked = ring(builder, "marked", 1);
    const BufferIndex other = ring(builder, "other", 1);
    add_fill(builder, "fill", home);
    add_fill(builder, "pause", other);
    // The second fetch of the block; what it brings is copied on by the same lane.
    builder.begin_block("use");
    for (const char* name : {"first", "second"}) {
      const Operand value = builder.next(fetched);
      builder.emit(std::string("fetch_") + name, LaneKind::h2d,
                   copied({home, Version::at(0), 0, -1}, value));
      if (name == std::string("second")) {
        builder.emit("mark", LaneKind::h2d, copied(value, builder.next(marked)));
      }
      builder.emit(std::string("use_") + name, LaneKind::compute,
                   copied(value, builder.next(other)));
    }
    builder.end_block();
    for (const char* block : {"fill", "pause", "use"}) builder.call(builder.schedule.train, block);
    builder.finish();
    EXPECT_EQ(alive(builder, marked), (Alive{false, slots == 2, true}));
  }
}

// Calls without compute ops are no phases; what they bring belongs to those beside them.
TEST(Phases, AGatherBelongsToTheCallsBesideIt) {
  Builder builder;
  const BufferIndex home = ring(builder, "home", 1);
  const BufferIndex gathered = ring(builder, "gathered", 1);
  const BufferIndex other = ring(builder, "other", 1);
  add_fill(builder, "fill", home);
  builder.begin_block("gather");
  const Operand value = builder.next(gathered);
  builder.emit("gather", LaneKind::h2d, copied({home, Version::at(0), 0, -1}, value));
  builder.end_block();
  builder.begin_block("use");
  builder.emit("use", LaneKind::compute,
               copied({gathered, Version::plus(-1), 0, -1}, builder.next(other)));
  builder.end_block();
  for (const char* block : {"fill", "gather", "use", "fill"}) {
    builder.call(builder.schedule.train, block);
  }
  builder.finish();
  EXPECT_EQ(alive(builder, gathered), (Alive{false, true, false}));
}

}  // namespace
}  // namespace fpdt
