// cuDNN's attention tiles against loops in double precision, with merging and adding, each mask and
// every grouping of heads.
//
// P and dS are rounded to bf16 before the second products, and so is the o that backward gets:
// kUnitBf16 of the magnitudes that are added. Results are rounded to bf16: kResult of them. The
// rest is f32: kSums.
#include <cmath>
#include <vector>

#include "fpdt/cuda/cudnn_attention.h"

#include "../cpu/kernel_case.h"

namespace fpdt {
namespace {

constexpr double kSums = 64 * kUnit;
constexpr double kResult = kUnitBf16;

struct Case {
  std::int64_t q_first, q_rows, k_first, k_rows, heads, kv_heads, head_dim;
  bool accumulates = false;
  Dtype o = Dtype::f32;
  std::int64_t members = 1;  // of one launch of backward
  std::int64_t window = 0;
};

template <class Tile>
void describe(Tile& op, const Case& c) {
  op.q_first = c.q_first;
  op.q_rows = c.q_rows;
  op.k_first = c.k_first;
  op.k_rows = c.k_rows;
  op.heads = c.heads;
  op.kv_heads = c.kv_heads;
  op.head_dim = c.head_dim;
  op.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  op.window = c.window;
}

// The operands, and the results of loops on them.
class Tile {
 public:
  explicit Tile(const Case& c) : c_(c) {
    q_ = memory_.put_random(Dtype::bf16, c.q_rows * c.heads * c.head_dim);
    kv_ = memory_.put_random(Dtype::bf16, c.k_rows * 2 * c.kv_heads * c.head_dim);
    q = memory_.values(q_);
    kv = memory_.values(kv_);
  }

  void check_forward() {
    AttentionForward op;
    describe(op, c_);
    op.q = q_;
    op.kv = kv_;
    op.o = target(c_.o, c_.q_rows * c_.heads * c_.head_dim);
    op.lse = target(Dtype::f32, c_.q_rows * c_.heads);
    op.workspace = workspace(cuda::tile_of(op, 0));
    std::vector<Expected> o, lse;
    const auto o_before = memory_.values(op.o), lse_before = memory_.values(op.lse);
    for (std::int64_t i = 0; i < c_.q_rows; ++i) {
      for (std::int64_t h = 0; h < c_.heads; ++h) expect_row(i, h, o_before, lse_before, o, lse);
    }
    memory_.run(op);
    expect_close(memory_.values(op.o), o, c_.o);
    expect_close(memory_.values(op.lse), lse, Dtype::f32);
  }

  void check_backward() {
    AttentionBackward op;
    describe(op, c_);
    op.q = q_;
    op.kv = kv_;
    op.dout = memory_.put_random(Dtype::bf16, c_.q_rows * c_.heads * c_.head_dim);
    op.delta = memory_.put_random(Dtype::f32, c_.q_rows * c_.heads);
    std::vector<double> lse = memory_.random(c_.q_rows * c_.heads);
    for (double& value : lse) value += 4;  // the whole sequence has more keys than this tile
    op.lse = memory_.put(Dtype::f32, lse);
    op.dq = target(Dtype::f32, c_.q_rows * c_.heads * c_.head_dim);
    op.dkv = target(Dtype::f32, c_.k_rows * 2 * c_.kv_heads * c_.head_dim);
    op.workspace = workspace(cuda::tile_of(op, 0, c_.members));
    std::vector<Expected> dq = before(op.dq), dkv = before(op.dkv);
    const auto dout = memory_.values(op.dout), delta = memory_.values(op.delta);
    lse = memory_.values(op.lse);
    for (std::int64_t i = 0; i < c_.q_rows; ++i) {
      for (std::int64_t h = 0; h < c_.heads; ++h) {
        const std::size_t row = index(i * c_.heads + h);
        add_gradients(i, h, dout, lse[row], delta[row], dq, dkv);
      }
    }
    memory_.run(op);
    expect_close(memory_.values(op.dq), dq, Dtype::f32);
    expect_close(memory_.values(op.dkv), dkv, Dtype::f32);
  }

 private:
  Target target(Dtype dtype, std::int64_t count) {
    return c_.accumulates ? memory_.accumulate(dtype, count) : memory_.write(dtype, count);
  }
  Operand workspace(const cuda::AttentionTile& tile) {
    cuda::AttentionPlans plans;
    const Bytes bytes = plans.prepare(tile);
    return memory_.put(Dtype::f32, std::vector<double>(index(bytes.value / 4), std::nan("")));
  }
  std::vector<Expected> before(const Target& of) {
    std::vector<Expected> result;
    for (const double value : memory_.values(of)) {
      result.push_back({c_.accumulates ? value : 0, kSums});
    }
    return result;
  }

  [[nodiscard]] std::size_t q_at(std::int64_t i, std::int64_t h) const {
    return index((i * c_.heads + h) * c_.head_dim);
  }
  [[nodiscard]] std::size_t k_at(std::int64_t j, std::int64_t h) const {
    return index((j * 2 * c_.kv_heads + h / (c_.heads / c_.kv_heads)) * c_.head_dim);
  }
  [[nodiscard]] std::size_t v_at(std::int64_t j, std::int64_t h) const {
    return k_at(j, h) + index(c_.kv_heads * c_.head_dim);
  }
  [[nodiscard]] std::size_t size() const { return index(c_.head_dim); }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(c_.head_dim)); }
  // Query i sees the keys [unseen(i), seen(i)).
  [[nodiscard]] std::int64_t seen(std::int64_t i) const {
    return std::min(c_.k_rows, c_.q_first + i + 1 - c_.k_first);
  }
  [[nodiscard]] std::int64_t unseen(std::int64_t i) const {
    return c_.window == 0 ? 0 : std::max<std::int64_t>(0, seen(i) - c_.window);
  }
  [[nodiscard]] double score(std::int64_t i, std::int64_t j, std::int64_t h) const {
    double sum = 0;
    for (std::size_t d = 0; d < size(); ++d) sum += q[q_at(i, h) + d] * kv[k_at(j, h) + d];
    return sum * scale();
  }

  void expect_row(std::int64_t i, std::int64_t h, const std::vector<double>& o_before,
                  const std::vector<double>& lse_before, std::vector<Expected>& o,
                  std::vector<Expected>& lse) const {
    const double held = c_.accumulates ? std::exp(lse_before[index(i * c_.heads + h)]) : 0;
    double sum = held;
    std::vector<double> values(size()), sizes(size());
    for (std::int64_t j = unseen(i); j < seen(i); ++j) {
      const double weight = std::exp(score(i, j, h));
      sum += weight;
      for (std::size_t d = 0; d < size(); ++d) {
        values[d] += weight * kv[v_at(j, h) + d];
        sizes[d] += weight * std::abs(kv[v_at(j, h) + d]);
      }
    }
    for (std::size_t d = 0; d < size(); ++d) {
      const double old = c_.accumulates ? held * o_before[q_at(i, h) + d] : 0;
      o.push_back(
          {(old + values[d]) / sum, (kUnitBf16 + kResult + kSums) * sizes[d] / sum + kSums});
    }
    lse.push_back({std::log(sum), kSums});
  }

  void add_gradients(std::int64_t i, std::int64_t h, const std::vector<double>& dout, double lse,
                     double delta, std::vector<Expected>& dq, std::vector<Expected>& dkv) const {
    const auto add = [](Expected& to, double factor, double error, double value) {
      to.value += factor * value;
      to.error += (error + (kResult + kSums) * std::abs(factor)) * std::abs(value);
    };
    for (std::int64_t j = unseen(i); j < seen(i); ++j) {
      const double p = std::exp(score(i, j, h) - lse);
      double dp = 0;
      for (std::size_t d = 0; d < size(); ++d) dp += dout[q_at(i, h) + d] * kv[v_at(j, h) + d];
      const double ds = p * (dp - delta) * scale();
      const double ds_error = kUnitBf16 * (std::abs(ds) + p * scale() * std::abs(delta)) +
                              kSums * p * scale() * (std::abs(dp) + std::abs(delta));
      for (std::size_t d = 0; d < size(); ++d) {
        add(dq[q_at(i, h) + d], ds, ds_error, kv[k_at(j, h) + d]);
        add(dkv[k_at(j, h) + d], ds, ds_error, q[q_at(i, h) + d]);
        add(dkv[v_at(j, h) + d], p, kUnitBf16 * p, dout[q_at(i, h) + d]);
      }
    }
  }

  Case c_;
  KernelCase memory_;
  Operand q_, kv_;
  std::vector<double> q, kv;
};

void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << "q " << c.q_first << "+" << c.q_rows << ", k " << c.k_first
                                  << "+" << c.k_rows << ", heads " << c.heads << "/" << c.kv_heads
                                  << " of " << c.head_dim << (c.accumulates ? ", adding" : "")
                                  << ", " << c.members << " members, window " << c.window);
  Tile tile(c);
  tile.check_forward();
  tile.check_backward();
}

TEST(CudnnPlayed, SeeEveryKey) { check({256, 128, 0, 256, 2, 2, 64}); }
TEST(CudnnPlayed, SeeKeysToADiagonalFromTheFirst) { check({128, 256, 128, 128, 2, 2, 64}); }
TEST(CudnnPlayed, SeeKeysToADiagonalFromTheFirstWithMoreKeys) {
  check({128, 128, 128, 256, 2, 1, 64});
}
TEST(CudnnPlayed, SeeKeysToADiagonalToTheLast) { check({256, 128, 0, 384, 2, 1, 64}); }
TEST(CudnnPlayed, ShareKeysAmongHeads) { check({128, 128, 0, 128, 6, 2, 96}); }
TEST(CudnnPlayed, TakeAllMembersInOneLaunch) {
  check({128, 256, 128, 128, 6, 2, 64, false, Dtype::f32, 3});
}
TEST(CudnnPlayed, TakeSomeMembersALaunch) {
  check({128, 128, 0, 256, 8, 2, 64, false, Dtype::f32, 2});
}
TEST(CudnnPlayed, AddTheSumOfMembers) { check({256, 128, 0, 384, 4, 1, 96, true, Dtype::f32, 4}); }
TEST(CudnnPlayed, MergeAndAdd) { check({128, 128, 0, 256, 4, 2, 128, true}); }
TEST(CudnnPlayed, MergeIntoBf16) { check({128, 128, 0, 128, 4, 1, 64, true, Dtype::bf16}); }
TEST(CudnnPlayed, SeeKeysOfAWindow) {
  for (const std::int64_t window : {1, 127, 128}) {
    check({128, 128, 128, 128, 2, 1, 64, false, Dtype::f32, 2, window});
  }
  check({128, 128, 128, 128, 2, 1, 64, true, Dtype::f32, 1, 17});
}
TEST(CudnnPlayed, WriteBf16) { check({0, 128, 0, 128, 1, 1, 192, false, Dtype::bf16}); }

}  // namespace
}  // namespace fpdt
