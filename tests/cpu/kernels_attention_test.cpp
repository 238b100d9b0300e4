// Attention tiles against softmax written out, whole and in tiles, forward and backward.
#include <limits>

#include "kernel_case.h"

namespace fpdt {
namespace {

struct TileShape {
  std::int64_t tokens = 0, heads = 1, kv_heads = 1, size = 1;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> document_starts{};  // ascending; empty: no documents operand
  std::int64_t chunk = 0;                       // rows of a tile; 0: all
  Dtype output = Dtype::f32;
  std::int64_t key_chunk = 0;  // key rows of a tile; 0: as many as query rows
  std::int64_t window = 0;
  double cap = 0;
};

double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }
// The derivative, from the result.
double slope(double result, double cap) { return cap > 0 ? 1 - result * result / (cap * cap) : 1; }

std::int64_t start_of(const TileShape& shape, std::int64_t token) {
  std::int64_t start = 0;
  for (const std::int64_t first : shape.document_starts) start = first <= token ? first : start;
  return start;
}

std::int64_t first_seen(const TileShape& shape, std::int64_t token) {
  const std::int64_t start = start_of(shape, token);
  return shape.window > 0 ? std::max(start, token + 1 - shape.window) : start;
}

// The whole sequence in double precision.
struct Whole {
  std::vector<double> q, kv, dout;             // inputs
  std::vector<double> o, lse, delta, dq, dkv;  // results
};

// Probabilities of one query row of one head, normalised, and the slopes of the cap.
std::vector<double> probabilities(const TileShape& s, const Whole& w, std::int64_t t,
                                  std::int64_t head, double scale, double& lse,
                                  std::vector<double>& slopes) {
  const std::int64_t kv_head = head / (s.heads / s.kv_heads);
  std::vector<double> p(index(s.tokens), 0.0);
  slopes = p;
  double sum = 0;
  for (std::int64_t u = first_seen(s, t); u <= t; ++u) {
    double score = 0;
    for (std::int64_t d = 0; d < s.size; ++d) {
      score += w.q[index((t * s.heads + head) * s.size + d)] *
               w.kv[index((u * 2 * s.kv_heads + kv_head) * s.size + d)];
    }
    score = capped(score * scale, s.cap);
    slopes[index(u)] = slope(score, s.cap);
    p[index(u)] = std::exp(score);
    sum += p[index(u)];
  }
  for (double& value : p) value /= sum;
  lse = std::log(sum);
  return p;
}

void attend(const TileShape& s, Whole& w, double scale) {
  w.o.assign(w.q.size(), 0.0);
  w.dq.assign(w.q.size(), 0.0);
  w.dkv.assign(w.kv.size(), 0.0);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t kv_head = head / (s.heads / s.kv_heads);
      const auto q_at = [&](std::int64_t d) { return index((t * s.heads + head) * s.size + d); };
      const auto k_at = [&](std::int64_t u, std::int64_t d) {
        return index((u * 2 * s.kv_heads + kv_head) * s.size + d);
      };
      const auto v_at = [&](std::int64_t u, std::int64_t d) {
        return index((u * 2 * s.kv_heads + s.kv_heads + kv_head) * s.size + d);
      };
      double lse = 0;
      std::vector<double> slopes;
      const std::vector<double> p = probabilities(s, w, t, head, scale, lse, slopes);
      double delta = 0;
      for (std::int64_t u = 0; u <= t; ++u) {
        for (std::int64_t d = 0; d < s.size; ++d) w.o[q_at(d)] += p[index(u)] * w.kv[v_at(u, d)];
      }
      for (std::int64_t d = 0; d < s.size; ++d) delta += w.o[q_at(d)] * w.dout[q_at(d)];
      w.lse.push_back(lse);
      w.delta.push_back(delta);
      for (std::int64_t u = 0; u <= t; ++u) {
        double dp = 0;
        for (std::int64_t d = 0; d < s.size; ++d) dp += w.dout[q_at(d)] * w.kv[v_at(u, d)];
        const double ds = p[index(u)] * (dp - delta) * scale * slopes[index(u)];
        for (std::int64_t d = 0; d < s.size; ++d) {
          w.dkv[v_at(u, d)] += p[index(u)] * w.dout[q_at(d)];
          w.dkv[k_at(u, d)] += ds * w.q[q_at(d)];
          w.dq[q_at(d)] += ds * w.kv[k_at(u, d)];
        }
      }
    }
  }
}

// Runs the kernels tile by tile and holds their results.
class Tiled {
 public:
  explicit Tiled(const TileShape& shape)
      : shape_(shape),
        chunk_(shape.chunk == 0 ? shape.tokens : shape.chunk),
        key_chunk_(shape.key_chunk == 0 ? chunk_ : shape.key_chunk),
        q_row_(shape.heads * shape.size),
        kv_row_(2 * shape.kv_heads * shape.size),
        scale_(1.0 / std::sqrt(static_cast<double>(shape.size))) {
    KernelCase values(7);
    whole.q = rounded(values.random(shape.tokens * q_row_));
    whole.kv = rounded(values.random(shape.tokens * kv_row_));
    whole.dout = rounded(values.random(shape.tokens * q_row_));
    attend(shape, whole, scale_);
  }

  // Computes o and lse of every query chunk, over its key chunks in order. Tiles above the diagonal
  // are left out.
  void forward() {
    for (std::int64_t q_first = 0; q_first < shape_.tokens; q_first += chunk_) {
      std::vector<double> o, lse;
      for (std::int64_t k_first = 0; k_first < q_first + chunk_; k_first += key_chunk_) {
        if (k_first >= shape_.tokens) break;
        KernelCase memory;
        AttentionForward op;
        set_tile(op, memory, q_first, k_first);
        op.o = target(memory, shape_.output, o, op.q_rows * q_row_);
        op.lse = target(memory, Dtype::f32, lse, op.q_rows * shape_.heads);
        memory.run(op);
        o = memory.values(op.o);
        lse = memory.values(op.lse);
      }
      append(got.o, o);
      append(got.lse, lse);
    }
  }

  void backward() {
    got.dq.assign(whole.q.size(), 0.0);
    got.dkv.assign(whole.kv.size(), 0.0);
    for (std::int64_t k_first = 0; k_first < shape_.tokens; k_first += key_chunk_) {
      std::vector<double> dkv;
      for (std::int64_t q_first = k_first / chunk_ * chunk_; q_first < shape_.tokens;
           q_first += chunk_) {
        KernelCase memory;
        AttentionBackward op;
        set_tile(op, memory, q_first, k_first);
        op.dout = memory.put(shape_.dtype, slice(whole.dout, q_first, q_row_));
        op.lse = memory.put(Dtype::f32, slice(whole.lse, q_first, shape_.heads));
        op.delta = memory.put(Dtype::f32, slice(whole.delta, q_first, shape_.heads));
        const bool begins = k_first == 0;
        op.dq = target(memory, Dtype::f32,
                       begins ? std::vector<double>{} : slice(got.dq, q_first, q_row_),
                       op.q_rows * q_row_);
        op.dkv = target(memory, Dtype::f32, dkv, op.k_rows * kv_row_);
        memory.run(op);
        dkv = memory.values(op.dkv);
        const std::vector<double> dq = memory.values(op.dq);
        std::copy(dq.begin(), dq.end(), got.dq.begin() + q_first * q_row_);
      }
      std::copy(dkv.begin(), dkv.end(), got.dkv.begin() + k_first * kv_row_);
    }
  }

  Whole whole, got;

 private:
  std::vector<double> rounded(const std::vector<double>& values) const {
    KernelCase memory;
    return memory.values(memory.put(shape_.dtype, values));
  }
  static void append(std::vector<double>& all, const std::vector<double>& part) {
    all.insert(all.end(), part.begin(), part.end());
  }
  [[nodiscard]] std::vector<double> slice(const std::vector<double>& all, std::int64_t first,
                                          std::int64_t row, std::int64_t rows = 0) const {
    const std::int64_t end = std::min(shape_.tokens, first + (rows == 0 ? chunk_ : rows));
    return {all.begin() + first * row, all.begin() + end * row};
  }
  // The first tile writes; later ones accumulate onto `before`.
  static Target target(KernelCase& memory, Dtype dtype, const std::vector<double>& before,
                       std::int64_t count) {
    if (before.empty()) return memory.write(dtype, count);
    return {memory.put(dtype, before), true};
  }
  template <class Op>
  void set_tile(Op& op, KernelCase& memory, std::int64_t q_first, std::int64_t k_first) const {
    op.q = memory.put(shape_.dtype, slice(whole.q, q_first, q_row_));
    op.kv = memory.put(shape_.dtype, slice(whole.kv, k_first, kv_row_, key_chunk_));
    if (!shape_.document_starts.empty()) {
      std::vector<double> documents;
      for (std::int64_t t = 0; t < shape_.tokens; ++t) {
        documents.push_back(static_cast<double>(start_of(shape_, t)));
      }
      op.documents = memory.put(Dtype::i32, documents);
    }
    op.q_first = q_first, op.q_rows = std::min(chunk_, shape_.tokens - q_first);
    op.k_first = k_first, op.k_rows = std::min(key_chunk_, shape_.tokens - k_first);
    op.heads = shape_.heads, op.kv_heads = shape_.kv_heads, op.head_dim = shape_.size;
    op.scale = scale_;
    op.window = shape_.window;
    op.cap = shape_.cap;
  }

  TileShape shape_;
  std::int64_t chunk_, key_chunk_, q_row_, kv_row_;
  double scale_;
};

// Scores are at most sqrt(D) in magnitude and err by D + 2 units of it; the relative error of
// probabilities is the same. Sums over the keys add a unit per key. A stored lse of magnitude < 16
// adds 16 units each time it is read. A cap errs by 8 units of its size. Values and upstream
// gradients are at most 1. Every stored partial output adds its rounding.
double forward_error(const TileShape& s) {
  const double score =
      static_cast<double>(s.size + 2) * std::sqrt(static_cast<double>(s.size)) * kUnit +
      8 * s.cap * kUnit;
  const std::int64_t rows = s.key_chunk == 0 ? s.chunk : s.key_chunk;
  const double tiles = rows == 0 ? 1 : static_cast<double>(s.tokens / rows + 1);
  return 2 * score + static_cast<double>(s.tokens + 16) * kUnit +
         tiles * (16 * kUnit + unit(s.output));
}

void check_tile(const TileShape& shape) {
  SCOPED_TRACE(testing::Message() << shape.tokens << " tokens, " << shape.heads << "/"
                                  << shape.kv_heads << " heads of " << shape.size << ", chunks of "
                                  << shape.chunk);
  Tiled tiled(shape);
  tiled.forward();
  const double error = forward_error(shape);
  expect_close(tiled.got.o, tiled.whole.o, error, shape.output);
  expect_close(tiled.got.lse, tiled.whole.lse, error, Dtype::f32);
  tiled.backward();
  // |dp - delta| <= 2 D scale = 2 sqrt(D); dkv sums a row's share of every later query in the
  // group, whose probabilities are at most one.
  const double root = std::sqrt(static_cast<double>(shape.size));
  expect_close(tiled.got.dq, tiled.whole.dq, 2 * root * error, Dtype::f32);
  const double queries = static_cast<double>(shape.heads / shape.kv_heads);
  const double mass = queries * (1 + std::log(static_cast<double>(shape.tokens)));
  expect_close(tiled.got.dkv, tiled.whole.dkv, 4 * root * mass * error, Dtype::f32);
}

TEST(AttentionKernels, OneToken) { check_tile({1, 1, 1, 1}); }
TEST(AttentionKernels, Whole) {
  check_tile({17, 2, 2, 8});
  check_tile({300, 1, 1, 16});
}
TEST(AttentionKernels, GroupedHeads) {
  check_tile({50, 6, 2, 10});
  check_tile({150, 4, 1, 7});
}
TEST(AttentionKernels, Chunked) {
  check_tile({60, 2, 1, 8, Dtype::f32, {}, 20});
  check_tile({61, 2, 1, 8, Dtype::f32, {}, 20});
  check_tile({290, 1, 1, 12, Dtype::f32, {}, 140});
}
TEST(AttentionKernels, TilesThatAreNotSquare) {
  check_tile({300, 2, 1, 8, Dtype::f32, {}, 300, Dtype::f32, 100});
  check_tile({300, 2, 1, 8, Dtype::f32, {0, 120}, 70, Dtype::f32, 300});
}
TEST(AttentionKernels, Documents) {
  check_tile({60, 2, 1, 8, Dtype::f32, {0, 1, 2, 25, 59}});
  check_tile({400, 1, 1, 8, Dtype::f32, {0, 130, 300}});
}
// Chunk 2 starts in the document of token 25, so in its early tiles some or all rows see nothing.
TEST(AttentionKernels, DocumentsAcrossChunks) {
  check_tile({60, 2, 1, 8, Dtype::f32, {0, 15, 25, 41}, 20});
  check_tile({64, 2, 2, 4, Dtype::f32, {0, 32}, 16});
}
TEST(AttentionKernels, Windows) {
  for (const std::int64_t window : {1, 2, 19, 20, 21, 45, 100}) {
    TileShape shape{61, 2, 1, 8, Dtype::f32, {}, 20};
    shape.window = window;
    check_tile(shape);
    shape.document_starts = {0, 15, 25, 41};
    check_tile(shape);
  }
  TileShape shape{300, 1, 1, 8, Dtype::f32, {}, 70, Dtype::f32, 300};
  shape.window = 130;
  check_tile(shape);
}
TEST(AttentionKernels, Caps) {
  for (const double cap : {0.3, 1.0, 50.0}) {
    TileShape shape{61, 4, 2, 8, Dtype::f32, {0, 15, 25, 41}, 20};
    shape.cap = cap;
    check_tile(shape);
    shape = {70, 4, 2, 16, Dtype::bf16, {0, 30}, 32};
    shape.cap = cap;
    shape.window = 21;
    check_tile(shape);
  }
}
TEST(AttentionKernels, Bf16) {
  check_tile({70, 4, 2, 16, Dtype::bf16, {0, 30}, 32});
  check_tile({70, 4, 2, 16, Dtype::bf16, {0, 30}, 32, Dtype::bf16});
}

TEST(AttentionKernels, UnseenRowsAreEmptyAndMergeLater) {
  KernelCase memory;
  AttentionForward op;
  op.q_first = 4, op.q_rows = 2, op.k_first = 0, op.k_rows = 4;
  op.heads = op.kv_heads = 1, op.head_dim = 2;
  op.q = memory.put_random(Dtype::f32, 4);
  op.kv = memory.put_random(Dtype::f32, 16);
  op.documents = memory.put(Dtype::i32, {0, 0, 0, 0, 2, 5});  // token 5 sees none of these keys
  op.o = memory.write(Dtype::f32, 4);
  op.lse = memory.write(Dtype::f32, 2);
  memory.run(op);
  EXPECT_TRUE(std::isfinite(memory.values(op.lse)[0]));
  EXPECT_EQ(memory.values(op.lse)[1], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(memory.values(op.o)[2], 0.0);
  EXPECT_EQ(memory.values(op.o)[3], 0.0);
  op.k_first = 4, op.k_rows = 2;
  op.o.accumulate = op.lse.accumulate = true;
  const std::vector<double> kv = memory.values(op.kv);
  memory.run(op);
  // Token 5 sees itself alone: its output is its value row, local row 1.
  EXPECT_EQ(memory.values(op.o)[2], kv[6]);
  EXPECT_EQ(memory.values(op.o)[3], kv[7]);
}

// Two queries of a document that begins after the four keys. The inputs are NaN, and zero times NaN
// is NaN: only a kernel that leaves the tile out keeps what was there.
template <class Attention>
Attention unseen_tile(KernelCase& memory) {
  const auto broken = [&](std::int64_t count) {
    return memory.put(Dtype::f32, std::vector<double>(index(count), std::nan("")));
  };
  Attention op;
  op.q_first = 4, op.q_rows = 2, op.k_first = 0, op.k_rows = 4;
  op.heads = op.kv_heads = 1, op.head_dim = 2;
  op.documents = memory.put(Dtype::i32, {0, 0, 0, 0, 4, 4});
  op.q = broken(4);
  op.kv = broken(16);
  return op;
}

TEST(AttentionKernels, TilesWithNothingToSeeChangeNothingForward) {
  KernelCase memory;
  AttentionForward op = unseen_tile<AttentionForward>(memory);
  op.o = memory.accumulate(Dtype::f32, 4);
  // The output of a row that has seen no key yet is cleared when a tile begins.
  op.lse = {memory.put(Dtype::f32, {0.5, -std::numeric_limits<double>::infinity()}), true};
  const auto o = memory.values(op.o), lse = memory.values(op.lse);
  memory.run(op);
  EXPECT_EQ(memory.values(op.o), o);
  EXPECT_EQ(memory.values(op.lse), lse);
}

TEST(AttentionKernels, TilesWithNothingToSeeChangeNothingBackward) {
  KernelCase memory;
  AttentionBackward op = unseen_tile<AttentionBackward>(memory);
  op.dout = memory.put(Dtype::f32, std::vector<double>(4, std::nan("")));
  op.lse = memory.put_random(Dtype::f32, 2);
  op.delta = memory.put_random(Dtype::f32, 2);
  op.dq = memory.accumulate(Dtype::f32, 4);
  op.dkv = memory.accumulate(Dtype::f32, 16);
  const auto dq = memory.values(op.dq), dkv = memory.values(op.dkv);
  memory.run(op);
  EXPECT_EQ(memory.values(op.dq), dq);
  EXPECT_EQ(memory.values(op.dkv), dkv);
}

TEST(AttentionKernels, RowsWithoutKeysHaveNoGradient) {
  KernelCase memory;
  AttentionBackward op;
  op.q_rows = op.k_rows = 2, op.heads = op.kv_heads = 1, op.head_dim = 2;
  op.q = memory.put_random(Dtype::f32, 4);
  op.kv = memory.put_random(Dtype::f32, 8);
  op.dout = memory.put_random(Dtype::f32, 4);
  const double none = -std::numeric_limits<double>::infinity();
  op.lse = memory.put(Dtype::f32, {none, none});
  op.delta = memory.put_random(Dtype::f32, 2);
  op.dq = memory.write(Dtype::f32, 4);
  op.dkv = memory.write(Dtype::f32, 8);
  memory.run(op);
  EXPECT_EQ(memory.values(op.dq), std::vector<double>(4, 0.0));
  EXPECT_EQ(memory.values(op.dkv), std::vector<double>(8, 0.0));
}

TEST(AttentionDeltaKernel, IsTheRowSum) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    KernelCase memory;
    AttentionDelta op;
    op.rows = 5, op.heads = 3, op.head_dim = 37;
    op.o = memory.put_random(dtype, 5 * 3 * 37);
    op.dout = memory.put_random(Dtype::f32, 5 * 3 * 37);
    op.delta = memory.write(Dtype::f32, 15);
    memory.run(op);
    const auto o = memory.values(op.o), dout = memory.values(op.dout);
    std::vector<double> delta(15, 0.0);
    for (std::size_t i = 0; i < o.size(); ++i) delta[i / 37] += o[i] * dout[i];
    expect_close(memory.values(op.delta), delta, 37 * 37 * kUnit, Dtype::f32);
  }
}

}  // namespace
}  // namespace fpdt
