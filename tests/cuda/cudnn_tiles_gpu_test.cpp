// cuDNN's attention tiles on a GPU: against loops in double precision, and pieces against a whole.
//
// Inputs are bf16 and exact. cuDNN rounds P and dS to bf16 before the second products, so an
// element errs by 2^-8 of the sum of its terms' magnitudes, plus the error of their f32 sum.
#include <algorithm>
#include <cmath>
#include <vector>

#include "fpdt/cuda/cudnn_attention.h"
#include "fpdt/cuda/gpu.h"

#include "../cpu/kernel_case.h"

namespace fpdt {
namespace {

struct TileShape {
  std::int64_t q_first, q_rows, k_first, k_rows, heads, kv_heads, head_dim;
  std::int64_t window = 0;
};

// Results of loops in double for a tile: values, and the magnitudes that were added.
struct Expectation {
  std::vector<Expected> o, lse, dq, dkv;
};

class Loops {
 public:
  Loops(const TileShape& s, const std::vector<double>& q, const std::vector<double>& kv)
      : s_(s), q_(q), kv_(kv), scale_(1 / std::sqrt(static_cast<double>(s.head_dim))) {
    scores();
  }
  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] const std::vector<double>& lse() const { return lse_; }
  [[nodiscard]] const std::vector<double>& o() const { return o_; }

  // The error of o grows with the magnitudes of its terms.
  [[nodiscard]] Expectation forward() const;
  [[nodiscard]] Expectation backward(const std::vector<double>& dout,
                                     const std::vector<double>& lse,
                                     const std::vector<double>& delta) const;

 private:
  [[nodiscard]] std::int64_t q_at(std::int64_t i, std::int64_t h) const {
    return (i * s_.heads + h) * s_.head_dim;
  }
  // The offset of key head h / (H/G); the value head is kv_heads later.
  [[nodiscard]] std::int64_t k_at(std::int64_t j, std::int64_t h) const {
    return (j * 2 * s_.kv_heads + h / (s_.heads / s_.kv_heads)) * s_.head_dim;
  }
  [[nodiscard]] std::int64_t v_at(std::int64_t j, std::int64_t h) const {
    return k_at(j, h) + s_.kv_heads * s_.head_dim;
  }
  [[nodiscard]] bool sees(std::int64_t i, std::int64_t j) const {
    const std::int64_t before = s_.q_first + i - s_.k_first - j;
    return before >= 0 && (s_.window == 0 || before < s_.window);
  }
  [[nodiscard]] double dot(const std::vector<double>& a, std::int64_t at,
                           const std::vector<double>& b, std::int64_t bt) const {
    double sum = 0;
    for (std::int64_t d = 0; d < s_.head_dim; ++d) sum += a[index(at + d)] * b[index(bt + d)];
    return sum;
  }
  void scores();

  TileShape s_;
  const std::vector<double>& q_;
  const std::vector<double>& kv_;
  double scale_;
  std::vector<double> lse_, o_;
};

void Loops::scores() {
  lse_.assign(index(s_.q_rows * s_.heads), 0);
  o_.assign(index(s_.q_rows * s_.heads * s_.head_dim), 0);
  for (std::int64_t i = 0; i < s_.q_rows; ++i) {
    for (std::int64_t h = 0; h < s_.heads; ++h) {
      double sum = 0;
      for (std::int64_t j = 0; j < s_.k_rows; ++j) {
        if (!sees(i, j)) continue;
        const double p = std::exp(scale_ * dot(q_, q_at(i, h), kv_, k_at(j, h)));
        sum += p;
        for (std::int64_t d = 0; d < s_.head_dim; ++d) {
          o_[index(q_at(i, h) + d)] += p * kv_[index(v_at(j, h) + d)];
        }
      }
      for (std::int64_t d = 0; d < s_.head_dim; ++d) o_[index(q_at(i, h) + d)] /= sum;
      lse_[index(i * s_.heads + h)] = std::log(sum);
    }
  }
}

// Values are within 1, so |P| |v| adds up to at most 1.
Expectation Loops::forward() const {
  Expectation expected;
  for (const double value : o_) expected.o.push_back({value, 1.5 * kUnitBf16});
  for (const double value : lse_) expected.lse.push_back({value, 1e-3});
  return expected;
}

Expectation Loops::backward(const std::vector<double>& dout, const std::vector<double>& lse,
                            const std::vector<double>& delta) const {
  Expectation expected;
  expected.dq.resize(q_.size());
  expected.dkv.resize(kv_.size());
  const auto add = [](Expected& to, double factor, double value, double lost = 0) {
    to.value += factor * value;
    to.error += 3 * kUnitBf16 * (std::abs(factor) + lost) * std::abs(value);
  };
  for (std::int64_t i = 0; i < s_.q_rows; ++i) {
    for (std::int64_t h = 0; h < s_.heads; ++h) {
      const auto row = index(i * s_.heads + h);
      for (std::int64_t j = 0; j < s_.k_rows; ++j) {
        if (!sees(i, j)) continue;
        const double p = std::exp(scale_ * dot(q_, q_at(i, h), kv_, k_at(j, h)) - lse[row]);
        const double dp = dot(dout, q_at(i, h), kv_, v_at(j, h));
        const double ds = scale_ * p * (dp - delta[row]);
        const double lost = scale_ * p * std::abs(delta[row]);
        for (std::int64_t d = 0; d < s_.head_dim; ++d) {
          add(expected.dq[index(q_at(i, h) + d)], ds, kv_[index(k_at(j, h) + d)], lost);
          add(expected.dkv[index(k_at(j, h) + d)], ds, q_[index(q_at(i, h) + d)], lost);
          add(expected.dkv[index(v_at(j, h) + d)], p, dout[index(q_at(i, h) + d)]);
        }
      }
    }
  }
  return expected;
}

Operand workspace(KernelCase& memory, const cuda::AttentionTile& tile) {
  cuda::AttentionPlans plans;
  return memory.put(Dtype::f32,
                    std::vector<double>(index(plans.prepare(tile).value / 4 + 1), std::nan("")));
}

template <class Tile>
void describe(Tile& op, const TileShape& s, double scale) {
  op.q_first = s.q_first, op.q_rows = s.q_rows, op.k_first = s.k_first, op.k_rows = s.k_rows;
  op.heads = s.heads, op.kv_heads = s.kv_heads, op.head_dim = s.head_dim, op.scale = scale;
  op.window = s.window;
}

void check_tile(const TileShape& s) {
  SCOPED_TRACE(testing::Message() << "q " << s.q_first << "+" << s.q_rows << " k " << s.k_first
                                  << "+" << s.k_rows << " heads " << s.heads << "/" << s.kv_heads
                                  << " of " << s.head_dim << " window " << s.window);
  KernelCase memory;
  const Operand q = memory.put_random(Dtype::bf16, s.q_rows * s.heads * s.head_dim);
  const Operand kv = memory.put_random(Dtype::bf16, s.k_rows * 2 * s.kv_heads * s.head_dim);
  const Operand dout = memory.put_random(Dtype::bf16, s.q_rows * s.heads * s.head_dim);
  const auto q_values = memory.values(q), kv_values = memory.values(kv);
  const auto dout_values = memory.values(dout);
  const Loops loops(s, q_values, kv_values);

  AttentionForward forward;
  describe(forward, s, loops.scale());
  forward.q = q, forward.kv = kv;
  forward.o = memory.write(Dtype::f32, s.q_rows * s.heads * s.head_dim);
  forward.lse = memory.write(Dtype::f32, s.q_rows * s.heads);
  forward.workspace = workspace(memory, cuda::tile_of(forward, 0));
  memory.run_alone(forward);
  const Expectation seen = loops.forward();
  expect_close(memory.values(forward.o), seen.o, Dtype::f32);
  expect_close(memory.values(forward.lse), seen.lse, Dtype::f32);

  std::vector<double> delta;
  for (std::size_t row = 0; row < loops.lse().size(); ++row) {
    double sum = 0;
    for (std::size_t d = 0; d < index(s.head_dim); ++d) {
      sum += loops.o()[row * index(s.head_dim) + d] * dout_values[row * index(s.head_dim) + d];
    }
    delta.push_back(sum);
  }
  AttentionBackward backward;
  describe(backward, s, loops.scale());
  backward.q = q, backward.kv = kv, backward.dout = dout;
  backward.lse = memory.put(Dtype::f32, loops.lse());
  backward.delta = memory.put(Dtype::f32, delta);
  const Expectation gradients = loops.backward(dout_values, loops.lse(), delta);
  for (const std::int64_t members : {std::int64_t{1}, s.heads / s.kv_heads}) {
    backward.dq = memory.write(Dtype::f32, s.q_rows * s.heads * s.head_dim);
    backward.dkv = memory.write(Dtype::f32, s.k_rows * 2 * s.kv_heads * s.head_dim);
    backward.workspace = workspace(memory, cuda::tile_of(backward, 0, members));
    memory.run_alone(backward);
    expect_close(memory.values(backward.dq), gradients.dq, Dtype::f32);
    expect_close(memory.values(backward.dkv), gradients.dkv, Dtype::f32);
  }
}

TEST(CudnnTiles, EqualLoops) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      check_tile({0, 128, 0, 128, 4, kv_heads, head_dim});      // the diagonal
      check_tile({512, 256, 128, 128, 4, kv_heads, head_dim});  // every key is seen
      check_tile({128, 128, 0, 256, 4, kv_heads, head_dim});    // up to the last corner
      check_tile({512, 128, 0, 384, 4, kv_heads, head_dim});
    }
  }
}

// Where `cudnn_windows: true` gives them to cuDNN.
TEST(CudnnTiles, OfWindowsEqualLoops) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t window : {1, 64, 200, 511}) {
      check_tile({512, 512, 512, 512, 2, 2, head_dim, window});
      check_tile({512, 512, 512, 512, 4, 1, head_dim, window});
    }
  }
}

// cuDNN's support check takes them in backward on sm_90 alone.
TEST(CudnnTiles, OfLargeHeadsEqualLoops) {
  if (cuda::open_gpu(0).architecture != 90) GTEST_SKIP() << "needs a GPU of sm_90";
  for (const std::int64_t head_dim : {192, 256}) {
    for (const std::int64_t kv_heads : {4, 2}) {
      check_tile({0, 128, 0, 128, 4, kv_heads, head_dim});
      check_tile({512, 256, 128, 128, 4, kv_heads, head_dim});
      check_tile({128, 128, 0, 256, 4, kv_heads, head_dim});
    }
  }
}

// A sequence of 384 as a triangle of chunks of 128, against one tile.
TEST(CudnnTiles, ChunksEqualTheWhole) {
  constexpr std::int64_t kRows = 384, kChunk = 128, kHeads = 4, kKv = 2, kDim = 128;
  KernelCase memory;
  const auto q_all = memory.random(kRows * kHeads * kDim);
  const auto kv_all = memory.random(kRows * 2 * kKv * kDim);
  const auto rows = [](const std::vector<double>& all, std::int64_t first, std::int64_t width) {
    const auto begin = all.begin() + first * width;
    return std::vector<double>(begin, begin + kChunk * width);
  };
  AttentionForward whole;
  describe(whole, {0, kRows, 0, kRows, kHeads, kKv, kDim}, 0.1);
  whole.q = memory.put(Dtype::bf16, q_all);
  whole.kv = memory.put(Dtype::bf16, kv_all);
  whole.o = memory.write(Dtype::f32, kRows * kHeads * kDim);
  whole.lse = memory.write(Dtype::f32, kRows * kHeads);
  whole.workspace = workspace(memory, cuda::tile_of(whole, 0));
  memory.run_alone(whole);
  const auto o_whole = memory.values(whole.o), lse_whole = memory.values(whole.lse);
  for (std::int64_t i = 0; i < kRows; i += kChunk) {
    AttentionForward tile;
    describe(tile, {i, kChunk, 0, kChunk, kHeads, kKv, kDim}, 0.1);
    tile.q = memory.put(Dtype::bf16, rows(q_all, i, kHeads * kDim));
    tile.o = memory.write(Dtype::f32, kChunk * kHeads * kDim);
    tile.lse = memory.write(Dtype::f32, kChunk * kHeads);
    for (std::int64_t j = 0; j <= i; j += kChunk) {
      tile.k_first = j;
      tile.kv = memory.put(Dtype::bf16, rows(kv_all, j, 2 * kKv * kDim));
      tile.workspace = workspace(memory, cuda::tile_of(tile, 0));
      memory.run_alone(tile);
      tile.o.accumulate = tile.lse.accumulate = true;
    }
    expect_close(memory.values(tile.o), rows(o_whole, i, kHeads * kDim), 1.5 * kUnitBf16,
                 Dtype::f32);
    expect_close(
        memory.values(tile.lse),
        [&] {
          const auto begin = lse_whole.begin() + i * kHeads;
          return std::vector<double>(begin, begin + kChunk * kHeads);
        }(),
        1e-3, Dtype::f32);
  }
}

}  // namespace
}  // namespace fpdt
