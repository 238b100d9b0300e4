// Two buffers share bytes exactly when the schedule orders their lives.
#include "fpdt/plan/place.h"

#include <gtest/gtest.h>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

Buffer ring(const std::string& name, std::int64_t rows, Role role = Role::temporary) {
  return {name, MemorySpace::device, role, Category::activations, Dtype::f32, {rows}, 1, kUnplaced};
}

// a is filled on compute and b is copied from it; then c is filled and copied to d.
struct Chain {
  Builder builder;
  BufferIndex a, b, c, d;

  explicit Chain(LaneKind second) {
    a = builder.add(ring("a", 1024));
    b = builder.add(ring("b", 1024));
    c = builder.add(ring("c", 1024));
    d = builder.add(ring("d", 1024));
    builder.begin_block("all");
    const Operand a0 = builder.next(a);
    builder.emit("fill_a", LaneKind::compute, Fill{{a0, false}, 0});
    builder.emit("copy_b", LaneKind::compute, Copy{a0, {builder.next(b), false}});
    const Operand c0 = builder.next(c);
    builder.emit("fill_c", second, Fill{{c0, false}, 0});
    builder.emit("copy_d", second, Copy{c0, {builder.next(d), false}});
    builder.end_block();
    builder.call(builder.schedule.train, "all");
    depend(builder.finish());
  }
};

TEST(Place, SharesWhatIsOrdered) {
  Chain chain(LaneKind::compute);
  const Placement placement = place(chain.builder.schedule);
  EXPECT_EQ(placement.of(MemorySpace::device).arena, Bytes{2 * 4096});
  EXPECT_EQ(placement.of(MemorySpace::device).bound, Bytes{2 * 4096});
}

TEST(Place, KeepsApartWhatMayRunTogether) {
  Chain chain(LaneKind::h2d);
  const Placement placement = place(chain.builder.schedule);
  EXPECT_EQ(placement.of(MemorySpace::device).arena, Bytes{4 * 4096});
  EXPECT_EQ(placement.of(MemorySpace::device).live, Bytes{2 * 4096});
}

TEST(Place, StatesShareWithNothing) {
  Builder builder;
  const BufferIndex state = builder.add(ring("state", 1024, Role::state));
  const BufferIndex temporary = builder.add(ring("temporary", 1024));
  builder.begin_block("all");
  builder.emit("read", LaneKind::compute,
               Copy{{state, Version::at(0), 0, -1}, {builder.next(temporary), false}});
  builder.end_block();
  builder.call(builder.schedule.train, "all");
  depend(builder.finish());
  EXPECT_EQ(place(builder.schedule).of(MemorySpace::device).arena, Bytes{2 * 4096});
}

}  // namespace
}  // namespace fpdt
