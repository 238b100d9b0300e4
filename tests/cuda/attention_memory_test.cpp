// How the attention kernels access memory: banks, and offsets of 64 bits.
//
// Large tiles have more than 2^31 elements of queries or keys. Only the last rows see keys, and
// only the last blocks of a grid run. Their results must be bit for bit those of a tile with these
// rows alone.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_attention.h"
#include "fpdt/runtime/bf16.h"

#include "../cpu/kernel_case.h"
#include "simt.h"
#include "sparse.h"

namespace fpdt {
namespace {

constexpr std::int64_t kWidth = 1024 * 256;
constexpr std::int64_t kBefore = (std::int64_t{1} << 31) / kWidth;  // rows
constexpr std::int64_t kRows = 16;                                  // after them

// The last rows of an operand: at the end of a large one, and alone.
class End {
 public:
  End(Dtype dtype, std::int64_t width, std::int64_t before)
      : first_(before * width), large_(dtype, (before + kRows) * width) {
    if (!large_.given()) return;
    std::mt19937 random(static_cast<std::uint32_t>(before));
    for (std::int64_t i = first_; i < large_.elements(); ++i) {
      const float value = static_cast<float>(random()) * 0x1p-31F - 1.0F;
      const std::uint16_t half = narrow(value);
      const bool is_half = dtype == Dtype::bf16;
      std::memcpy(large_.at(i), is_half ? static_cast<const void*>(&half) : &value,
                  is_half ? sizeof half : sizeof value);
    }
    alone_.assign(large_.at(first_), large_.at(large_.elements()));
    before_ = alone_;
  }
  [[nodiscard]] bool given() const { return large_.given(); }
  [[nodiscard]] View view(Access access, bool all) {
    const View whole = large_.view(access);
    if (all) return whole;
    return {alone_.data(), whole.elements - first_, whole.dtype, access};
  }
  // Both runs must leave the same bits, and must change them unless the operand is only read.
  void expect_same(Access access) const {
    EXPECT_EQ(before_ == alone_, access == Access::read);
    EXPECT_EQ(std::memcmp(large_.at(first_), alone_.data(), alone_.size()), 0);
    EXPECT_FALSE(large_.touched(0, first_));
  }

 private:
  std::int64_t first_;
  Sparse large_;
  std::vector<std::byte, Aligned<std::byte>> alone_, before_;
};

// A field of an op, and its value in both runs.
struct Field {
  Operand* operand;
  End* end;
  Access access = Access::read;
};

// Runs the last blocks of `op` on large operands, which begin `queries` and `keys` rows before the
// last ones, and then runs it on the last rows alone. These rows are the tokens from kBefore on,
// and form one document.
template <class Op>
void run_both(Op& op, std::int64_t queries, std::int64_t keys, const std::vector<Field>& fields,
              std::int64_t blocks) {
  std::vector<std::int32_t> starts(kBefore + kRows, 0);
  std::fill(starts.begin() + kBefore, starts.end(), static_cast<std::int32_t>(kBefore));
  const View documents{reinterpret_cast<std::byte*>(starts.data()), std::ssize(starts), Dtype::i32,
                       Access::read};
  op.kv_heads = op.heads, op.head_dim = 256, op.scale = 0.0625;
  for (const bool all : {true, false}) {
    op.q_rows = (all ? queries : 0) + kRows, op.q_first = kBefore + kRows - op.q_rows;
    op.k_rows = (all ? keys : 0) + kRows, op.k_first = kBefore + kRows - op.k_rows;
    std::vector<View> views;
    for (const Field& field : fields) {
      field.operand->buffer = static_cast<BufferIndex>(views.size());
      views.push_back(field.end == nullptr ? documents : field.end->view(field.access, all));
    }
    emulator::set({.seed = 0, .last_blocks = all ? blocks : 1});
    cuda::execute(op, {views, 0, nullptr, nullptr});
  }
  emulator::set(emulator::Options{});
  for (const Field& field : fields) {
    if (field.end != nullptr) field.end->expect_same(field.access);
  }
}

#define SKIP_UNLESS_GIVEN(...)                                               \
  for (const End* end : {__VA_ARGS__}) {                                     \
    if (!end->given()) GTEST_SKIP() << "the system maps no memory so large"; \
  }

// Offsets in a shared tile, in 16-byte chunks; banks hold eight side by side.
template <int kDim>
void expect_banks_apart() {
  for (int row = 0; row < 16; row += 8) {
    for (int chunk = 0; chunk < kDim / 8; ++chunk) {
      std::array<int, 8> used{};
      for (int i = row; i < row + 8; ++i) {
        const int place = chunk ^ cuda::SharedTile<kDim>::turn(i);
        ASSERT_LT(place, kDim / 8);
        ++used[static_cast<std::size_t>((i * kDim / 8 + place) % 8)];
      }
      EXPECT_EQ(used, (std::array<int, 8>{1, 1, 1, 1, 1, 1, 1, 1})) << kDim << " " << chunk;
    }
  }
}

TEST(AttentionBanks, EightRowsAtATimeDoNotMeet) {
  expect_banks_apart<64>();
  expect_banks_apart<96>();
  expect_banks_apart<128>();
  expect_banks_apart<192>();
  expect_banks_apart<256>();
}

TEST(LargeAttention, Queries) {
  AttentionForward op;
  op.heads = 1024;
  End q(Dtype::bf16, kWidth, kBefore), kv(Dtype::bf16, 2 * kWidth, 0);
  End o(Dtype::f32, kWidth, kBefore), lse(Dtype::f32, op.heads, kBefore);
  SKIP_UNLESS_GIVEN(&q, &kv, &o, &lse);
  run_both(op, kBefore, 0,
           {{&op.q, &q},
            {&op.kv, &kv},
            {&op.documents, nullptr},
            {&op.o.operand, &o, Access::accumulate},
            {&op.lse.operand, &lse, Access::accumulate}},
           kBefore / 128 + 1);  // all blocks of the last head
}

TEST(LargeAttention, Keys) {
  AttentionForward op;
  op.heads = 512;
  End q(Dtype::bf16, kWidth / 2, 0), kv(Dtype::bf16, kWidth, kBefore);
  End o(Dtype::f32, kWidth / 2, 0), lse(Dtype::f32, op.heads, 0);
  SKIP_UNLESS_GIVEN(&q, &kv, &o, &lse);
  run_both(op, 0, kBefore,
           {{&op.q, &q},
            {&op.kv, &kv},
            {&op.documents, nullptr},
            {&op.o.operand, &o, Access::accumulate},
            {&op.lse.operand, &lse, Access::accumulate}},
           1);
}

TEST(LargeAttention, GradientsOfKeys) {
  AttentionBackward op;
  op.heads = 512;
  End q(Dtype::bf16, kWidth / 2, 0), kv(Dtype::bf16, kWidth, kBefore);
  End dout(Dtype::bf16, kWidth / 2, 0), lse(Dtype::f32, op.heads, 0),
      delta(Dtype::f32, op.heads, 0);
  End dq(Dtype::f32, kWidth / 2, 0), dkv(Dtype::f32, kWidth, kBefore);
  SKIP_UNLESS_GIVEN(&q, &kv, &dout, &lse, &delta, &dq, &dkv);
  run_both(op, 0, kBefore,
           {{&op.q, &q},
            {&op.kv, &kv},
            {&op.dout, &dout},
            {&op.lse, &lse},
            {&op.delta, &delta},
            {&op.documents, nullptr},
            {&op.dq.operand, &dq, Access::accumulate},
            {&op.dkv.operand, &dkv, Access::accumulate}},
           1);
}

}  // namespace
}  // namespace fpdt
