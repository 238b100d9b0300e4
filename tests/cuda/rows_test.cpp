// Promises of the row kernels beyond the CPU's: operands may begin at any element, rows that are
// too wide are refused, sines of large angles are right.
#include <random>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/cuda/heads.h"

#include "../cpu/kernel_case.h"

namespace fpdt {
namespace {

// Values in memory that begins `shift` elements after a multiple of 256 bytes.
class Shifted {
 public:
  Shifted(Dtype dtype, std::int64_t count, std::int64_t shift)
      : dtype_(dtype), count_(count), shift_(shift), bytes_(size(count + shift)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i * i % 251) / 125.0F - 1.0F;
      const std::uint16_t half = to_bf16(value);
      if (dtype == Dtype::f32) {
        std::memcpy(bytes_.data() + size(shift + i), &value, sizeof value);
      } else {
        std::memcpy(bytes_.data() + size(shift + i), &half, sizeof half);
      }
    }
  }
  [[nodiscard]] View view(Access access) {
    return {reinterpret_cast<std::byte*>(bytes_.data() + size(shift_)), count_, dtype_, access};
  }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> result;
    for (std::int64_t i = 0; i < count_; ++i) {
      float value = 0;
      std::uint16_t half = 0;
      std::memcpy(&half, bytes_.data() + size(shift_ + i), sizeof half);
      if (dtype_ == Dtype::f32) std::memcpy(&value, bytes_.data() + size(shift_ + i), sizeof value);
      result.push_back(static_cast<double>(dtype_ == Dtype::f32 ? value : from_bf16(half)));
    }
    return result;
  }

 private:
  [[nodiscard]] std::size_t size(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * dtype_bytes(dtype_));
  }

  Dtype dtype_;
  std::int64_t count_, shift_;
  std::vector<unsigned char, Aligned<unsigned char>> bytes_;
};

struct Field {
  Operand* operand;
  std::int64_t count;
  Access access;
};

// Shifts all operands of an op by `shift` elements, and returns what its targets hold then.
template <class Op>
std::vector<std::vector<double>> run_shifted(Op& op, Dtype dtype, const std::vector<Field>& fields,
                                             std::int64_t shift) {
  std::vector<Shifted> memories;
  std::vector<View> views;
  for (const Field& field : fields) {
    field.operand->buffer = static_cast<BufferIndex>(memories.size());
    memories.emplace_back(dtype, field.count, shift);
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    views.push_back(memories[i].view(fields[i].access));
  }
  run_kernel(op, views, 0, 0);
  std::vector<std::vector<double>> results;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].access != Access::read) results.push_back(memories[i].values());
  }
  return results;
}

// `error`: the difference that another order of sums may make.
template <class Op>
void expect_same_anywhere(Op& op, const std::vector<Field>& fields, double error) {
  SCOPED_TRACE(body_name(Body(op)));
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const auto even = run_shifted(op, dtype, fields, 0), odd = run_shifted(op, dtype, fields, 1);
    for (std::size_t i = 0; i < even.size(); ++i) expect_close(odd[i], even[i], error, dtype);
  }
}

// Sanitizers report a load of 16 bytes that is not at a multiple of 16.
TEST(Rows, OperandsBeginAnywhere) {
  constexpr std::int64_t kCount = 5 * 48;
  Fill fill;
  fill.value = 3;
  expect_same_anywhere(fill, {{&fill.target.operand, kCount, Access::write}}, 0);
  Copy copy;
  for (const Access access : {Access::write, Access::accumulate}) {
    expect_same_anywhere(
        copy, {{&copy.source, kCount, Access::read}, {&copy.target.operand, kCount, access}}, 0);
  }
  Permute permute;
  permute.outer = 5, permute.inner = 3, permute.width = 16;
  expect_same_anywhere(
      permute,
      {{&permute.source, kCount, Access::read}, {&permute.target.operand, kCount, Access::write}},
      0);
  Activation activation;
  activation.rows = 5, activation.width = 48;
  expect_same_anywhere(
      activation,
      {{&activation.x, 2 * kCount, Access::read}, {&activation.y.operand, kCount, Access::write}},
      0);
  ActivationBackward slope;
  slope.rows = 5, slope.width = 48;
  expect_same_anywhere(slope,
                       {{&slope.x, 2 * kCount, Access::read},
                        {&slope.dy, kCount, Access::read},
                        {&slope.dx.operand, 2 * kCount, Access::write}},
                       0);
}

TEST(Rows, OperandsOfNormsAndHeadsBeginAnywhere) {
  constexpr std::int64_t kCount = 5 * 48;
  Norm norm;
  norm.rows = 5, norm.width = 48, norm.kind = NormKind::layer;
  expect_same_anywhere(norm,
                       {{&norm.x, kCount, Access::read},
                        {&norm.weight, 48, Access::read},
                        {&norm.bias, 48, Access::read},
                        {&norm.y.operand, kCount, Access::write}},
                       100 * kUnit);
  NormBackward back;
  back.rows = 5, back.width = 48;
  expect_same_anywhere(back,
                       {{&back.x, kCount, Access::read},
                        {&back.weight, 48, Access::read},
                        {&back.dy, kCount, Access::read},
                        {&back.addend, kCount, Access::read},
                        {&back.dx.operand, kCount, Access::write}},
                       400 * kUnit);
  NormColumns columns;
  columns.rows = 5, columns.stride = 48, columns.width = 16, columns.column_first = 8;
  expect_same_anywhere(
      columns,
      {{&columns.weight, 16, Access::read}, {&columns.values.operand, kCount, Access::accumulate}},
      100 * kUnit);
  NormColumnsBackward of_columns;
  of_columns.rows = 5, of_columns.stride = 48, of_columns.width = 16, of_columns.column_first = 8;
  expect_same_anywhere(of_columns,
                       {{&of_columns.x, kCount, Access::read},
                        {&of_columns.weight, 16, Access::read},
                        {&of_columns.gradient.operand, kCount, Access::accumulate}},
                       400 * kUnit);
  SplitHeads split;
  split.rows = 5, split.heads = 1, split.kv_heads = 1, split.head_dim = 16;
  split.rotary.rotary = 16;
  expect_same_anywhere(split,
                       {{&split.qkv, kCount, Access::read},
                        {&split.q_weight, 16, Access::read},
                        {&split.k_weight, 16, Access::read},
                        {&split.q.operand, 80, Access::write},
                        {&split.kv.operand, 160, Access::write}},
                       100 * kUnit);
  JoinHeads join;
  join.rows = 5, join.heads = 1, join.kv_heads = 1, join.head_dim = 16;
  join.rotary.rotary = 16;
  expect_same_anywhere(join,
                       {{&join.dq, 80, Access::read},
                        {&join.dkv, 160, Access::read},
                        {&join.dqkv.operand, kCount, Access::write}},
                       0);
}

TEST(Rows, SinesAndCosinesOfAnyTurn) {
  std::mt19937 random(1);
  for (const double most : {1.0, 100.0, 1e7, 0x1p31}) {
    for (int i = 0; i < 2000; ++i) {
      const double angle = most * static_cast<double>(random()) * 0x1p-32;
      double sine = 0, cosine = 0;
      cuda::heads::sine_cosine(angle, sine, cosine);
      ASSERT_NEAR(sine, std::sin(angle), 3e-9) << angle;
      ASSERT_NEAR(cosine, std::cos(angle), 3e-9) << angle;
    }
  }
}

TEST(Rows, NormsRefuseRowsThatNoBlockHolds) {
  constexpr std::int64_t kWide = 16385;
  KernelCase memory;
  Norm op;
  op.rows = 1, op.width = kWide;
  op.x = memory.put_random(Dtype::f32, kWide);
  op.weight = memory.put_random(Dtype::f32, kWide);
  op.y = memory.write(Dtype::f32, kWide);
  EXPECT_THROW(memory.run(op), InputError);
}

}  // namespace
}  // namespace fpdt
