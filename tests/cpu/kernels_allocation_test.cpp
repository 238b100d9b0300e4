// `run` allocates nothing. This program counts operator new. Eigen's own allocations fail an
// assertion of the library (EIGEN_NO_MALLOC), so it is enough to run shapes larger than every block
// size.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cpu/kernels.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fpdt {
namespace {

Operand some() { return {.buffer = 0, .version = {}}; }

View view_of(std::vector<float>& memory, Access access) {
  return {reinterpret_cast<std::byte*>(memory.data()), static_cast<std::int64_t>(memory.size()),
          Dtype::f32, access};
}

std::int64_t allocations_of(const Body& body, const std::vector<View>& views) {
  Pool pool(2);
  Kernels kernels(pool);
  const std::int64_t before = allocations;
  kernels.run(body, views, 0);
  return allocations - before;
}

TEST(KernelAllocation, WorkspaceIsFixed) {
  Pool one(1);
  Pool three(3);
  const std::int64_t single = Kernels(one).workspace_bytes();
  const std::int64_t triple = Kernels(three).workspace_bytes();
  EXPECT_GT(single, 0);
  EXPECT_LT(triple - single, 2 * 4 * (1 << 20) + 1);
  EXPECT_EQ((triple - single) % 2, 0);
}

TEST(KernelAllocation, LargeProducts) {
  std::vector<float> a(400 * 900, 1.0F), b(900 * 600, 1.0F), c(400 * 600);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Matmul op;
      op.a = op.b = op.out.operand = some();
      op.m = 400, op.n = 600, op.k = 900, op.transpose_a = ta, op.transpose_b = tb;
      const std::vector<View> views{view_of(a, Access::read), view_of(b, Access::read),
                                    view_of(c, Access::write)};
      EXPECT_EQ(allocations_of(op, views), 0);
      EXPECT_EQ(c.front(), 900.0F);
      EXPECT_EQ(c.back(), 900.0F);
    }
  }
}

TEST(KernelAllocation, LargestHeads) {
  constexpr std::int64_t kRows = 300, kSize = 512;
  std::vector<float> q(kRows * kSize), kv(2 * kRows * kSize), rows(kRows), o(kRows * kSize);
  AttentionForward forward;
  forward.q = forward.kv = forward.o.operand = forward.lse.operand = some();
  forward.q_rows = forward.k_rows = kRows, forward.heads = forward.kv_heads = 1;
  forward.head_dim = kSize;
  const std::vector<View> views{view_of(q, Access::read), view_of(kv, Access::read),
                                view_of(o, Access::write), view_of(rows, Access::write)};
  EXPECT_EQ(allocations_of(forward, views), 0);
  AttentionBackward backward;
  backward.q = backward.kv = backward.dout = backward.lse = backward.delta = some();
  backward.dq.operand = backward.dkv.operand = some();
  backward.q_rows = backward.k_rows = kRows, backward.heads = backward.kv_heads = 1;
  backward.head_dim = kSize;
  std::vector<float> delta(kRows), dkv(2 * kRows * kSize);
  const std::vector<View> more{view_of(q, Access::read),     view_of(kv, Access::read),
                               view_of(q, Access::read),     view_of(rows, Access::read),
                               view_of(delta, Access::read), view_of(o, Access::write),
                               view_of(dkv, Access::write)};
  EXPECT_EQ(allocations_of(backward, more), 0);
}

}  // namespace
}  // namespace fpdt
