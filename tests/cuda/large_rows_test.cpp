// Kernels that work row by row, on more than 2^31 elements. Only the last blocks of a grid run. The
// end of their results must be bit for bit what the op computes from the last rows alone.
#include <array>
#include <cstring>
#include <random>

#include "fpdt/cuda/kernels.h"
#include "fpdt/runtime/bf16.h"

#include "../cpu/kernel_case.h"
#include "simt.h"
#include "sparse.h"

namespace fpdt {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 31;
constexpr std::int64_t kRows = 16;   // of inputs, at the end
constexpr std::int64_t kBlocks = 2;  // that run; each covers at most 8 rows
constexpr std::int64_t kRun = 2;     // rows that these blocks cover at least

// [parts, rows, width] bf16, as large memory and as the last kRows rows of each part alone.
class Pair {
 public:
  Pair(std::int64_t parts, std::int64_t rows, std::int64_t width)
      : parts_(parts),
        rows_(rows),
        width_(width),
        large_(Dtype::bf16, parts * rows * width),
        small_(static_cast<std::size_t>(parts * kRows * width)) {}

  [[nodiscard]] bool given() const { return large_.given(); }
  void fill() {
    std::mt19937 random(1);
    for (std::uint16_t& value : small_) {
      value = narrow(static_cast<float>(random()) * 0x1p-31F - 1.0F);
    }
    for (std::int64_t part = 0; part < parts_; ++part) {
      std::memcpy(large_.at(end(part) - kRows * width_), small(part, 0), bytes(kRows));
    }
  }
  [[nodiscard]] View large(Access access) const { return large_.view(access); }
  [[nodiscard]] View alone(Access access) {
    return {reinterpret_cast<std::byte*>(small_.data()), std::ssize(small_), Dtype::bf16, access};
  }
  // Compares the last rows of each part. Memory before the filled rows must be untouched.
  void expect_same(std::int64_t rows = kRun) {
    std::int64_t before = 0;
    for (std::int64_t part = 0; part < parts_; ++part) {
      EXPECT_EQ(
          std::memcmp(large_.at(end(part) - rows * width_), small(part, kRows - rows), bytes(rows)),
          0)
          << "part " << part;
      EXPECT_FALSE(large_.touched(before, end(part) - kRows * width_)) << "part " << part;
      before = end(part);
    }
  }

 private:
  [[nodiscard]] std::int64_t end(std::int64_t part) const { return (part + 1) * rows_ * width_; }
  [[nodiscard]] std::uint16_t* small(std::int64_t part, std::int64_t row) {
    return small_.data() + (part * kRows + row) * width_;
  }
  [[nodiscard]] std::size_t bytes(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * width_ * 2);
  }

  std::int64_t parts_, rows_, width_;
  Sparse large_;
  std::vector<std::uint16_t, Aligned<std::uint16_t>> small_;
};

// A field of an op and its value in both runs.
struct Field {
  Operand* operand;
  View large, alone;
};
Field of(Operand& operand, Pair& pair, Access access = Access::read) {
  return {&operand, pair.large(access), pair.alone(access)};
}
Field of(Target& target, Pair& pair) { return of(target.operand, pair, Access::write); }

// Runs the end of `op` on large operands. Then `change` makes it an op on the last rows alone, and
// all of it runs.
template <class Op, class Change>
void run_both(Op& op, const std::vector<Field>& fields, Change&& change) {
  std::vector<View> large, alone;
  for (const Field& field : fields) {
    field.operand->buffer = static_cast<BufferIndex>(large.size());
    large.push_back(field.large);
    alone.push_back(field.alone);
  }
  emulator::set({.seed = 0, .last_blocks = kBlocks});
  cuda::execute(op, {large, 0, nullptr, nullptr});
  change();
  emulator::set({});
  cuda::execute(op, {alone, 0, nullptr, nullptr});
}

#define SKIP_UNLESS_GIVEN(...)                                                  \
  for (const Pair* memory : {__VA_ARGS__}) {                                    \
    if (!memory->given()) GTEST_SKIP() << "the system maps no memory so large"; \
  }

constexpr std::int64_t kWidth = 8192;
constexpr std::int64_t kManyRows = kMany / kWidth + 3;

TEST(LargeRows, Copy) {
  constexpr std::int64_t kNarrow = 512;  // two blocks move 8 rows
  Pair source(1, kMany / kNarrow + 3, kNarrow), target(1, kMany / kNarrow + 3, kNarrow);
  SKIP_UNLESS_GIVEN(&source, &target);
  source.fill();
  Copy op;
  run_both(op, {of(op.source, source), of(op.target, target)}, [] {});
  target.expect_same();
}

TEST(LargeRows, Fill) {
  constexpr std::int64_t kNarrow = 512;
  Pair target(1, kMany / kNarrow + 3, kNarrow);
  SKIP_UNLESS_GIVEN(&target);
  Fill op;
  op.value = 3;
  run_both(op, {of(op.target, target)}, [] {});
  target.expect_same();
}

TEST(LargeRows, Norm) {
  Pair x(1, kManyRows, kWidth), y(1, kManyRows, kWidth), weight(1, kRows, kWidth);
  SKIP_UNLESS_GIVEN(&x, &y);
  x.fill();
  weight.fill();
  Norm op;
  op.rows = kManyRows, op.width = kWidth;
  run_both(op, {of(op.x, x), of(op.weight, weight), of(op.y, y)}, [&] { op.rows = kRows; });
  y.expect_same();
}

TEST(LargeRows, NormBackward) {
  Pair x(1, kManyRows, kWidth), dy(1, kManyRows, kWidth), addend(1, kManyRows, kWidth),
      dx(1, kManyRows, kWidth), weight(1, kRows, kWidth);
  SKIP_UNLESS_GIVEN(&x, &dy, &addend, &dx);
  for (Pair* pair : {&x, &dy, &addend, &weight}) pair->fill();
  NormBackward op;
  op.rows = kManyRows, op.width = kWidth;
  run_both(
      op, {of(op.x, x), of(op.weight, weight), of(op.dy, dy), of(op.addend, addend), of(op.dx, dx)},
      [&] { op.rows = kRows; });
  dx.expect_same();
}

TEST(LargeRows, Activation) {
  Pair x(1, kManyRows, 2 * kWidth), y(1, kManyRows, kWidth), dx(1, kManyRows, 2 * kWidth);
  SKIP_UNLESS_GIVEN(&x, &y, &dx);
  x.fill();
  Activation op;
  op.rows = kManyRows, op.width = kWidth;
  run_both(op, {of(op.x, x), of(op.y, y)}, [&] { op.rows = kRows; });
  y.expect_same();
  ActivationBackward back;
  back.rows = kManyRows, back.width = kWidth;
  run_both(back, {of(back.x, x), of(back.dy, y), of(back.dx, dx)}, [&] { back.rows = kRows; });
  dx.expect_same();
}

// [2, rows, width] becomes [rows, 2, width]: the last rows of both parts, side by side.
TEST(LargeRows, Permute) {
  constexpr std::int64_t kHalf = kManyRows / 2 + 1;
  Pair source(2, kHalf, kWidth), target(1, kHalf, 2 * kWidth);
  SKIP_UNLESS_GIVEN(&source, &target);
  source.fill();
  Permute op;
  op.outer = 2, op.inner = kHalf, op.width = kWidth;
  run_both(op, {of(op.source, source), of(op.target, target)}, [&] { op.inner = kRows; });
  target.expect_same(1);
}

TEST(LargeRows, Heads) {
  constexpr std::int64_t kTokens = kMany / 128 + 5;
  Pair qkv(1, kTokens, 6 * 64), q(2, kTokens, 64), kv(2, kTokens, 2 * 64), back(1, kTokens, 6 * 64);
  SKIP_UNLESS_GIVEN(&qkv, &q, &kv, &back);
  qkv.fill();
  const auto shape = [](auto& op) {
    op.rows = kTokens, op.heads = 2, op.kv_heads = 2, op.head_dim = 64, op.ranks = 2;
    op.rotary.rotary = 64;
  };
  const auto shrink = [](auto& op) { op.rows = kRows, op.token_first.a = kTokens - kRows; };
  SplitHeads split;
  shape(split);
  run_both(split, {of(split.qkv, qkv), of(split.q, q), of(split.kv, kv)}, [&] { shrink(split); });
  q.expect_same();
  kv.expect_same();
  JoinHeads join;
  shape(join);
  run_both(join, {of(join.dq, q), of(join.dkv, kv), of(join.dqkv, back)}, [&] { shrink(join); });
  back.expect_same();
}

}  // namespace
}  // namespace fpdt
