// Kernels on more than 2^32 elements, of which only the end is checked: the last blocks of a grid
// run. An offset that is cut to 32 bits points to the beginning instead, where no page may have
// been touched.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cuda/collective.h"
#include "fpdt/cuda/device.h"
#include "fpdt/cuda/kernels.h"

#include "sparse.h"

namespace fpdt {
namespace {

using cuda::bf16;

constexpr std::int64_t kMany = std::int64_t{1} << 32;

// The last `count` elements.
template <class T>
std::span<T> last(const Sparse& memory, std::int64_t count) {
  return {reinterpret_cast<T*>(memory.at(memory.elements() - count)),
          static_cast<std::size_t>(count)};
}
bool begun(const Sparse& memory) { return memory.touched(0, memory.elements() / 2); }

template <class T>
View view(std::vector<T>& values, Dtype dtype, Access access) {
  return {reinterpret_cast<std::byte*>(values.data()), std::ssize(values), dtype, access};
}

// Operands have the numbers of their views.
template <class... Fields>
void number(Fields&... fields) {
  BufferIndex next = 0;
  const auto one = [&next](auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, Target>) {
      field.operand.buffer = next++;
    } else {
      field.buffer = next++;
    }
  };
  (one(fields), ...);
}

class LargeOperands : public testing::Test {
 protected:
  ~LargeOperands() override { emulator::set(emulator::Options{}); }

  // Partial sums of blocks that do not run are 0.
  template <class Op>
  void run(const Op& op, const std::vector<View>& views, std::int64_t last_blocks) {
    emulator::set({.seed = 0, .last_blocks = last_blocks});
    std::fill(scratch_.begin(), scratch_.end(), 0.0);
    cuda::execute(op, {views, 0, nullptr, reinterpret_cast<std::byte*>(scratch_.data())});
  }

 private:
  std::vector<double> scratch_ = std::vector<double>(cuda::kScratchBytes / 8);
};

#define SKIP_UNLESS_GIVEN(...)                                                  \
  for (const Sparse* memory : {__VA_ARGS__}) {                                  \
    if (!memory->given()) GTEST_SKIP() << "the system maps no memory so large"; \
  }

TEST_F(LargeOperands, SquaredNorm) {
  const Sparse source(Dtype::f32, kMany + (1 << 21));  // the last block begins beyond kMany
  SKIP_UNLESS_GIVEN(&source);
  const std::array<float, 3> end{1, 2, 3};
  std::copy(end.begin(), end.end(), last<float>(source, 3).begin());
  std::vector<float> sum(1);
  SquaredNorm op;
  number(op.source, op.sum);
  run(op, {source.view(Access::read), view(sum, Dtype::f32, Access::write)}, 2);
  EXPECT_EQ(sum[0], 14.0F);
  EXPECT_FALSE(begun(source));
}

TEST_F(LargeOperands, ColumnSum) {
  constexpr std::int64_t kWidth = 4096, kRows = kMany / kWidth + 1;
  const Sparse source(Dtype::bf16, kRows * kWidth);
  SKIP_UNLESS_GIVEN(&source);
  last<bf16>(source, 1)[0] = cuda::from_float<bf16>(3.0F);
  std::vector<float> out(kWidth);
  ColumnSum op;
  op.rows = kRows, op.width = kWidth;
  number(op.source, op.out);
  run(op, {source.view(Access::read), view(out, Dtype::f32, Access::write)}, 1);
  EXPECT_EQ(out.back(), 3.0F);
  EXPECT_FALSE(begun(source));
}

TEST_F(LargeOperands, AdamW) {
  constexpr std::int64_t kCount = kMany + 1003, kEnd = 1500;
  const Sparse grad(Dtype::f32, kCount), master(Dtype::f32, kCount), m(Dtype::f32, kCount),
      v(Dtype::f32, kCount), param(Dtype::bf16, kCount);
  SKIP_UNLESS_GIVEN(&grad, &master, &m, &v, &param);
  std::vector<float> norm{4}, step{0.01F, 0.5F, 0.25F, 1};
  AdamW op;
  op.clip = 1;
  number(op.grad, op.norm, op.step, op.master, op.m, op.v, op.master_out, op.m_out, op.v_out,
         op.param);
  std::vector<std::vector<float>> small;
  for (const Sparse* state : {&grad, &master, &m, &v}) {
    const auto end = last<float>(*state, kEnd);
    for (std::size_t i = 0; i < end.size(); ++i) {
      end[i] = 1.0F / static_cast<float>(i + small.size() + 1);
    }
    small.emplace_back(end.begin(), end.end());
  }
  std::vector<bf16> small_param(kEnd);
  const auto run_on = [&](auto&& of, const View& params, std::int64_t last_blocks) {
    const auto read = [&](std::size_t i) { return of(i, Access::read); };
    const auto write = [&](std::size_t i) { return of(i, Access::write); };
    run(op,
        {read(0), view(norm, Dtype::f32, Access::read), view(step, Dtype::f32, Access::read),
         read(1), read(2), read(3), write(1), write(2), write(3), params},
        last_blocks);
  };
  const std::array<const Sparse*, 4> large{&grad, &master, &m, &v};
  run_on([&](std::size_t i, Access access) { return large[i]->view(access); },
         param.view(Access::write), 3);
  run_on([&](std::size_t i, Access access) { return view(small[i], Dtype::f32, access); },
         view(small_param, Dtype::bf16, Access::write), -1);
  for (std::size_t i = 0; i < large.size(); ++i) {
    const auto end = last<float>(*large[i], kEnd);
    EXPECT_TRUE(std::equal(end.begin(), end.end(), small[i].begin()));
    EXPECT_FALSE(begun(*large[i]));
  }
  const auto params = last<bf16>(param, kEnd);
  for (std::size_t i = 0; i < params.size(); ++i) EXPECT_EQ(params[i].bits, small_param[i].bits);
  EXPECT_FALSE(begun(param));
}

TEST_F(LargeOperands, Embedding) {
  constexpr std::int64_t kWidth = 4096, kRows = kMany / kWidth + 3;
  const Sparse table(Dtype::bf16, kRows * kWidth), x(Dtype::bf16, kRows * kWidth),
      dtable(Dtype::f32, kRows * kWidth);
  SKIP_UNLESS_GIVEN(&table, &x, &dtable);
  std::vector<std::int32_t> tokens(kRows, static_cast<std::int32_t>(kRows - 1));
  for (bf16& value : last<bf16>(table, kWidth)) value = cuda::from_float<bf16>(3.0F);
  Embedding op;
  op.rows = kRows, op.width = kWidth;
  number(op.tokens, op.table, op.x);
  run(op, {view(tokens, Dtype::i32, Access::read), table.view(Access::read), x.view(Access::write)},
      1);
  for (const bf16& value : last<bf16>(x, kWidth)) ASSERT_EQ(cuda::to_float(value), 3.0F);
  EXPECT_FALSE(begun(table));
  EXPECT_FALSE(begun(x));

  std::vector<std::int32_t> few(3, static_cast<std::int32_t>(kRows - 1));
  std::vector<float> dx(3 * kWidth, 2.0F);
  EmbeddingBackward back;
  back.rows = 3, back.width = kWidth;
  number(back.tokens, back.dx, back.dtable);
  run(back,
      {view(few, Dtype::i32, Access::read), view(dx, Dtype::f32, Access::read),
       dtable.view(Access::accumulate)},
      -1);
  for (const float sum : last<float>(dtable, kWidth)) ASSERT_EQ(sum, 6.0F);
  EXPECT_FALSE(begun(dtable));
}

// The last row of a large tile must equal the same row alone.
TEST_F(LargeOperands, Loss) {
  constexpr std::int64_t kWidth = 32776, kRows = kMany / kWidth + 2, kLabel = kWidth - 1;
  const Sparse logits(Dtype::bf16, kRows * kWidth), dlogits(Dtype::bf16, kRows * kWidth);
  SKIP_UNLESS_GIVEN(&logits, &dlogits);
  std::vector<bf16> row;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    row.push_back(cuda::from_float<bf16>(static_cast<float>(i % 53) / 7.0F));
  }
  std::copy(row.begin(), row.end(), last<bf16>(logits, kWidth).begin());
  std::vector<std::int32_t> labels(kRows, static_cast<std::int32_t>(kLabel)), label{kLabel};
  std::vector<float> statistics(3 * kRows), statistic(3), scale{0.5F};
  const View some = view(labels, Dtype::i32, Access::read);
  const View one = view(label, Dtype::i32, Access::read);

  LossStatistics op;
  op.rows = kRows, op.vocab_count = kWidth;
  number(op.logits, op.labels, op.statistics);
  run(op, {logits.view(Access::read), some, view(statistics, Dtype::f32, Access::write)}, 1);
  op.rows = 1;
  run(op, {view(row, Dtype::bf16, Access::read), one, view(statistic, Dtype::f32, Access::write)},
      -1);
  EXPECT_TRUE(std::equal(statistic.begin(), statistic.end(), statistics.end() - 3));
  EXPECT_EQ(statistic[2], cuda::to_float(row.back()));

  LossGradient gradient;
  gradient.rows = kRows, gradient.vocab_count = kWidth;
  number(gradient.logits, gradient.labels, gradient.statistics, gradient.scale, gradient.dlogits);
  run(gradient,
      {logits.view(Access::read), some, view(statistics, Dtype::f32, Access::read),
       view(scale, Dtype::f32, Access::read), dlogits.view(Access::write)},
      5);
  std::vector<bf16> alone(kWidth);
  gradient.rows = 1;
  run(gradient,
      {view(row, Dtype::bf16, Access::read), one, view(statistic, Dtype::f32, Access::read),
       view(scale, Dtype::f32, Access::read), view(alone, Dtype::bf16, Access::write)},
      -1);
  const auto end = last<bf16>(dlogits, kWidth);
  for (std::size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(end[i].bits, alone[i].bits) << i;
  EXPECT_FALSE(begun(logits));
  EXPECT_FALSE(begun(dlogits));
}

TEST_F(LargeOperands, Collectives) {
  constexpr std::int64_t kCount = kMany + 1002;
  const Sparse first(Dtype::bf16, kCount), second(Dtype::bf16, kCount), sum(Dtype::f32, kCount),
      both(Dtype::bf16, 2 * kCount);
  SKIP_UNLESS_GIVEN(&first, &second, &sum, &both);
  last<bf16>(first, 1)[0] = cuda::from_float<bf16>(1.0F);
  last<bf16>(second, 1)[0] = cuda::from_float<bf16>(2.0F);
  emulator::set({.seed = 0, .last_blocks = 2});
  const auto receive = [&](auto body, const Sparse& target) {
    body.send.resize(1);
    body.receive.resize(1);
    const std::array<View, 2> one{first.view(Access::read), target.view(Access::write)};
    const std::array<View, 2> other{second.view(Access::read), target.view(Access::write)};
    const std::array<std::span<const View>, 2> members{one, other};
    cuda::receive(body, 0, members, nullptr);
  };
  receive(AllReduce{}, sum);
  EXPECT_EQ(last<float>(sum, 1)[0], 3.0F);
  receive(AllGather{}, both);
  EXPECT_EQ(cuda::to_float(last<bf16>(both, 1)[0]), 2.0F);
  for (const Sparse* memory : {&first, &second, &sum, &both}) EXPECT_FALSE(begun(*memory));
}

}  // namespace
}  // namespace fpdt
