// Our own attention tiles against softmax written out in double precision.
#include "fpdt/cuda/kernels_attention_limits.h"

#include "attention_numbers.h"
#include "device_under_test.h"

namespace fpdt {
namespace {

// The values of the operands. With `codes` every query looks for one key, so that p is 1 or 0 and a
// wrong index shows in full. With `low` all scores are about -8 D.
enum class Data { uniform, codes, low };

struct Tile {
  std::int64_t q_first = 0, q_rows = 0, k_first = 0, k_rows = 0;
  std::int64_t heads = 1, kv_heads = 1, size = 64;
  std::vector<double> starts{};  // of documents, ascending; empty: no documents operand
  Data data = Data::uniform;
  double scale = 0;  // 0: 1 / sqrt(D), or 8 for data that is not uniform
  bool accumulate = false;
  Dtype output = Dtype::f32;
  std::int64_t window = 0;

  [[nodiscard]] std::int64_t q_count() const { return q_rows * heads * size; }
  [[nodiscard]] std::int64_t kv_count() const { return k_rows * 2 * kv_heads * size; }
};

testing::Message name(const Tile& t) {
  return testing::Message() << "queries " << t.q_first << "+" << t.q_rows << ", keys " << t.k_first
                            << "+" << t.k_rows << ", " << t.heads << "/" << t.kv_heads
                            << " heads of " << t.size << (t.accumulate ? ", accumulating" : "");
}

double sign(double value) { return value < 0 ? -1 : 1; }

// Sets q and kv.
template <class Op>
void fill(const Tile& t, Op& op, KernelCase& memory) {
  std::vector<double> q = memory.random(t.q_count()), kv = memory.random(t.kv_count());
  for (std::int64_t i = 0; t.data != Data::uniform && i < t.k_rows * t.kv_heads; ++i) {
    const std::int64_t first =
        (i / t.kv_heads * 2 * t.kv_heads + i % t.kv_heads) * t.size;  // offset of a key
    for (std::int64_t d = first; d < first + t.size; ++d) {
      double& key = kv[index(d)];
      key = t.data == Data::codes ? sign(key) : -1 + key / 64;
    }
  }
  for (std::int64_t i = 0; t.data != Data::uniform && i < t.q_rows * t.heads; ++i) {
    const std::int64_t kv_head = i % t.heads / (t.heads / t.kv_heads);
    const std::int64_t key = (11 * i + 5) % t.k_rows;
    for (std::int64_t d = 0; d < t.size; ++d) {
      q[index(i * t.size + d)] =
          t.data == Data::codes ? kv[index((key * 2 * t.kv_heads + kv_head) * t.size + d)] : 1;
    }
  }
  op.q = memory.put(Dtype::bf16, q);
  op.kv = memory.put(Dtype::bf16, kv);
}

template <class Op>
Op op_of(const Tile& t, KernelCase& memory) {
  Op op;
  op.q_first = t.q_first, op.q_rows = t.q_rows, op.k_first = t.k_first, op.k_rows = t.k_rows;
  op.heads = t.heads, op.kv_heads = t.kv_heads, op.head_dim = t.size;
  const double usual = t.data == Data::uniform ? 1 / std::sqrt(static_cast<double>(t.size)) : 8;
  op.window = t.window;
  op.scale = t.scale > 0 ? t.scale : usual;
  if (!t.starts.empty()) {
    std::vector<double> documents;
    for (std::int64_t token = 0; token < t.q_first + t.q_rows; ++token) {
      const auto at = static_cast<double>(token);
      documents.push_back(*(std::upper_bound(t.starts.begin(), t.starts.end(), at) - 1));
    }
    op.documents = memory.put(Dtype::i32, documents);
  }
  fill(t, op, memory);
  return op;
}

void check_forward(const Tile& t) {
  SCOPED_TRACE(name(t));
  KernelCase memory(3);
  auto op = op_of<AttentionForward>(t, memory);
  op.o = memory.write(t.output, t.q_count());
  op.lse = memory.write(Dtype::f32, t.q_rows * t.heads);
  if (t.accumulate) {
    std::vector<double> o = memory.random(t.q_count()), lse = memory.random(t.q_rows * t.heads);
    for (std::int64_t i = 0; i < t.q_count(); ++i) {
      if (i / t.size % 3 == 0) o[index(i)] = 0, lse[index(i / t.size)] = kNothing;
    }
    op.o = {memory.put(t.output, o), true};
    op.lse = {memory.put(Dtype::f32, lse), true};
  }
  const Numbers numbers(op, memory);
  const Forward expected = t.accumulate
                               ? attend(numbers, memory.values(op.o), memory.values(op.lse))
                               : attend(numbers, {}, {});
  memory.run(op);
  expect_close(memory.values(op.o), expected.o, t.output);
  expect_close(memory.values(op.lse), expected.lse, Dtype::f32);
}

void check_backward(const Tile& t) {
  SCOPED_TRACE(name(t) << ", backward");
  KernelCase memory(4);
  auto op = op_of<AttentionBackward>(t, memory);
  op.dout = memory.put_random(Dtype::bf16, t.q_count());
  op.delta = memory.put_random(Dtype::f32, t.q_rows * t.heads);
  const Numbers numbers(op, memory);
  // The lse is larger, as if other tiles had the same weight again. Every seventh row has seen no
  // key.
  std::vector<double> lse;
  for (const Expected& own : attend(numbers, {}, {}).lse) {
    lse.push_back(own.value == kNothing || lse.size() % 7 == 6 ? kNothing : own.value + 0.7);
  }
  op.lse = memory.put(Dtype::f32, lse);
  op.dq = memory.write(Dtype::f32, t.q_count());
  op.dkv = memory.write(Dtype::f32, t.kv_count());
  if (t.accumulate) {
    op.dq = memory.accumulate(Dtype::f32, t.q_count());
    op.dkv = memory.accumulate(Dtype::f32, t.kv_count());
  }
  Backward expected = differentiate(numbers, memory.values(op.dout), memory.values(op.lse),
                                    memory.values(op.delta));
  if (t.accumulate) {
    accumulate(expected.dq, memory.values(op.dq));
    accumulate(expected.dkv, memory.values(op.dkv));
  }
  memory.run(op);
  expect_close(memory.values(op.dq), expected.dq, Dtype::f32);
  expect_close(memory.values(op.dkv), expected.dkv, Dtype::f32);
}

void check(const Tile& t) {
  check_forward(t);
  check_backward(t);
}
void check_both(Tile t) {
  check(t);
  t.accumulate = true;
  check(t);
}

TEST(AttentionTiles, Dense) { check_both({.q_first = 90, .q_rows = 70, .k_rows = 90}); }
TEST(AttentionTiles, Diagonal) {
  check({.q_first = 64, .q_rows = 128, .k_first = 64, .k_rows = 128});
}
TEST(AttentionTiles, BottomRight) {
  check({.q_first = 60, .q_rows = 40, .k_rows = 100});
  // The first query does not see the last key of a block.
  check({.q_first = 62, .q_rows = 10, .k_rows = 72});
}
TEST(AttentionTiles, QueriesBeforeKeys) {
  check_both({.q_first = 10, .q_rows = 90, .k_first = 50, .k_rows = 60});
}
TEST(AttentionTiles, KeysAfterQueries) {
  check_both({.q_rows = 65, .k_first = 65, .k_rows = 20});
  check_both({.q_rows = 65, .k_first = 65, .k_rows = 20, .starts = {0, 30}});
}
TEST(AttentionTiles, OneToken) { check_both({.q_rows = 1, .k_rows = 1}); }

TEST(AttentionTiles, RaggedRows) {
  for (const auto& [q_rows, k_rows] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 129}, {63, 65}, {65, 63}, {100, 1}, {129, 100}}) {
    check({.q_first = 40, .q_rows = q_rows, .k_rows = k_rows});
  }
}

TEST(AttentionTiles, HeadSizes) {
  for (const std::int64_t size : {8, 40, 192, 256}) {
    check({.q_first = 20, .q_rows = 30, .k_rows = 50, .size = size, .accumulate = true});
  }
}
// Several blocks of queries, then of keys, in the kernels for this head size.
TEST(AttentionTiles, BlocksOfLargeHeads) {
  check({.q_rows = 132, .k_first = 40, .k_rows = 70, .size = 128});
  check({.q_first = 90, .q_rows = 40, .k_rows = 130, .size = 128, .accumulate = true});
}

TEST(AttentionTiles, GroupsOfHeads) {
  check({.q_first = 10, .q_rows = 40, .k_rows = 45, .heads = 2, .kv_heads = 2, .size = 24});
  check({.q_first = 10, .q_rows = 40, .k_rows = 45, .heads = 4, .kv_heads = 2, .size = 24});
  check({.q_first = 10, .q_rows = 40, .k_rows = 45, .heads = 4, .kv_heads = 1, .size = 24});
  check({.q_rows = 30, .k_rows = 30, .heads = 8, .kv_heads = 1});
}

TEST(AttentionTiles, EveryQueryFindsItsKey) {
  for (const std::int64_t size : {96, 128, 192, 256}) {
    check({.q_first = 60, .q_rows = 20, .k_rows = 75, .size = size, .data = Data::codes});
  }
  check(
      {.q_first = 60, .q_rows = 40, .k_rows = 70, .heads = 4, .kv_heads = 2, .data = Data::codes});
}

TEST(AttentionTiles, ScoresFarFromZero) {
  check({.q_first = 20, .q_rows = 60, .k_rows = 80, .data = Data::low});
  check({.q_first = 20, .q_rows = 60, .k_rows = 80, .scale = 20});
}

TEST(AttentionTiles, Documents) {
  // Boundaries in, at and near the end of a block of keys, and documents of one token.
  const std::vector<double> starts{0, 1, 2, 50, 63, 66, 100};
  check({.q_rows = 110, .k_rows = 110, .starts = starts});
  check({.q_first = 60, .q_rows = 60, .k_rows = 66, .starts = {0, 64}, .accumulate = true});
  check({.q_first = 40,
         .q_rows = 60,
         .k_first = 30,
         .k_rows = 60,
         .heads = 2,
         .size = 128,
         .starts = starts});
  // Blocks of keys that no query of a block sees, before and after blocks that some queries see.
  check({.q_rows = 200, .k_rows = 200, .size = 16, .starts = {0, 100}});
  // No query sees any key.
  check({.q_first = 100, .q_rows = 40, .k_rows = 100, .starts = {0, 100}});
}

TEST(AttentionTiles, Windows) {
  const std::vector<double> starts{0, 1, 50, 63, 100};
  for (const std::int64_t window : {1, 2, 63, 64, 65, 100, 500}) {
    check({.q_first = 60, .q_rows = 70, .k_rows = 130, .window = window});
    check({.q_rows = 110, .k_rows = 110, .starts = starts, .accumulate = true, .window = window});
  }
  // Blocks of queries that see no key of the tile, and a tile that none sees.
  check_both({.q_first = 130, .q_rows = 200, .k_rows = 130, .size = 16, .window = 70});
  check_both({.q_first = 200, .q_rows = 40, .k_rows = 130, .window = 71});
  check({.q_first = 30, .q_rows = 100, .k_first = 20, .k_rows = 90, .size = 128, .window = 33});
}

// GPUs for consumers and graphics have 99 KiB for a block. There, large heads have smaller blocks.
TEST(AttentionTiles, LargeHeadsOnSmallerGpus) {
  limit_shared_memory(99 << 10);
  const std::vector<double> starts{0, 1, 50, 63, 100};
  for (const std::int64_t size : {128, 192, 256}) {
    check({.q_first = 20,
           .q_rows = 70,
           .k_rows = 75,
           .heads = 2,
           .size = size - 8,
           .starts = starts,
           .accumulate = true});
    check({.q_first = 60, .q_rows = 40, .k_rows = 80, .size = size, .window = 35});
  }
  limit_shared_memory(163 << 10);
}

TEST(AttentionTiles, OutputInBf16) {
  Tile t{.q_first = 20, .q_rows = 50, .k_rows = 70, .heads = 2, .starts = {0, 25}};
  t.output = Dtype::bf16;
  check_forward(t);
  t.accumulate = true, t.size = 40;
  check_forward(t);
}

// A whole tile that is cut into tiles of some rows, with f32 results between them. Each tile rounds
// its results and continues from a rounded lse.
class Cut {
 public:
  template <class Op>
  Op tile(std::int64_t q_first, std::int64_t q_end, std::int64_t k_first, std::int64_t k_end,
          KernelCase& memory) const {
    Tile part = whole;
    part.q_first += q_first, part.q_rows = q_end - q_first;
    part.k_first += k_first, part.k_rows = k_end - k_first;
    Op op = op_of<Op>(part, memory);
    op.q = memory.put(Dtype::bf16, rows(numbers.q, q_first, q_end, q_width()));
    op.kv = memory.put(Dtype::bf16, rows(numbers.kv, k_first, k_end, kv_width()));
    return op;
  }
  [[nodiscard]] std::int64_t q_width() const { return whole.heads * whole.size; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * whole.kv_heads * whole.size; }
  // Writes if nothing is there yet.
  static Target target(KernelCase& memory, const std::vector<double>& before, std::int64_t count) {
    if (before.empty()) return memory.write(Dtype::f32, count);
    return {memory.put(Dtype::f32, before), true};
  }
  static std::vector<double> rows(const std::vector<double>& all, std::int64_t first,
                                  std::int64_t end, std::int64_t width) {
    return {all.begin() + first * width, all.begin() + end * width};
  }
  static std::vector<Expected> rounded(std::vector<Expected> values) {
    for (Expected& one : values) one.error += 64 * kUnit * (1 + std::abs(one.value));
    return values;
  }

  Tile whole{.q_first = 50, .q_rows = 100, .k_rows = 150, .heads = 2, .starts = {0, 40, 110}};
  KernelCase inputs;
  Numbers numbers{op_of<AttentionForward>(whole, inputs), inputs};
  Forward forward = attend(numbers, {}, {});
};

TEST(AttentionTiles, ChunksMakeTheWhole) {
  const Cut cut;
  std::vector<double> o, lse;
  const std::vector<std::int64_t> cuts{0, 64, 70, 110, 150};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    KernelCase memory;
    auto op = cut.tile<AttentionForward>(0, 100, cuts[i], cuts[i + 1], memory);
    op.o = Cut::target(memory, o, 100 * cut.q_width());
    op.lse = Cut::target(memory, lse, 200);
    memory.run(op);
    o = memory.values(op.o);
    lse = memory.values(op.lse);
  }
  expect_close(o, Cut::rounded(cut.forward.o), Dtype::f32);
  expect_close(lse, Cut::rounded(cut.forward.lse), Dtype::f32);
}

TEST(AttentionTiles, GradientsOfChunksAddUp) {
  const Cut cut;
  KernelCase inputs(6);
  const auto rounded = [&](Dtype dtype, std::int64_t count) {
    return inputs.values(inputs.put_random(dtype, count));
  };
  const std::vector<double> dout = rounded(Dtype::bf16, 100 * cut.q_width());
  const std::vector<double> delta = rounded(Dtype::f32, 200);
  std::vector<double> lse, dkv;
  for (const Expected& one : cut.forward.lse) {
    lse.push_back(static_cast<double>(static_cast<float>(one.value)));
  }
  std::vector<std::vector<double>> dq(2);
  const std::vector<std::int64_t> q_cuts{0, 30, 100}, k_cuts{0, 70, 150};
  for (std::size_t j = 0; j < 2; ++j) {
    std::vector<double> dkv_of_chunk;
    for (std::size_t i = 0; i < 2; ++i) {
      KernelCase memory;
      auto op =
          cut.tile<AttentionBackward>(q_cuts[i], q_cuts[i + 1], k_cuts[j], k_cuts[j + 1], memory);
      const auto part = [&](const std::vector<double>& all, std::int64_t width) {
        return Cut::rows(all, q_cuts[i], q_cuts[i + 1], width);
      };
      op.dout = memory.put(Dtype::bf16, part(dout, cut.q_width()));
      op.lse = memory.put(Dtype::f32, part(lse, 2));
      op.delta = memory.put(Dtype::f32, part(delta, 2));
      op.dq = Cut::target(memory, dq[i], op.q_rows * cut.q_width());
      op.dkv = Cut::target(memory, dkv_of_chunk, op.k_rows * cut.kv_width());
      memory.run(op);
      dq[i] = memory.values(op.dq);
      dkv_of_chunk = memory.values(op.dkv);
    }
    dkv.insert(dkv.end(), dkv_of_chunk.begin(), dkv_of_chunk.end());
  }
  dq[0].insert(dq[0].end(), dq[1].begin(), dq[1].end());
  const Backward expected = differentiate(cut.numbers, dout, lse, delta);
  expect_close(dq[0], Cut::rounded(expected.dq), Dtype::f32);
  expect_close(dkv, Cut::rounded(expected.dkv), Dtype::f32);
}

// The inputs are NaN, and zero times NaN is NaN. So only a kernel that skips the tile keeps the
// earlier values.
template <class Op>
Op unseen_tile(KernelCase& memory) {
  const std::vector<double> broken(8 * 64, std::nan(""));
  Op op;
  op.q_first = 4, op.q_rows = 2, op.k_first = 0, op.k_rows = 4;
  op.heads = op.kv_heads = 1, op.head_dim = 64;
  op.documents = memory.put(Dtype::i32, {0, 0, 0, 0, 4, 4});
  op.q = memory.put(Dtype::bf16, {broken.begin(), broken.begin() + 128});
  op.kv = memory.put(Dtype::bf16, broken);
  return op;
}

TEST(AttentionTiles, WithNothingToSeeChangeNothing) {
  KernelCase memory;
  auto forward = unseen_tile<AttentionForward>(memory);
  forward.o = memory.accumulate(Dtype::f32, 128);
  forward.lse = {memory.put(Dtype::f32, {0.5, kNothing}), true};
  const auto o = memory.values(forward.o), lse = memory.values(forward.lse);
  memory.run(forward);
  EXPECT_EQ(memory.values(forward.o), o);
  EXPECT_EQ(memory.values(forward.lse), lse);

  auto backward = unseen_tile<AttentionBackward>(memory);
  backward.dout = backward.q;
  backward.lse = memory.put_random(Dtype::f32, 2);
  backward.delta = memory.put_random(Dtype::f32, 2);
  backward.dq = memory.accumulate(Dtype::f32, 128);
  backward.dkv = memory.accumulate(Dtype::f32, 512);
  const auto dq = memory.values(backward.dq), dkv = memory.values(backward.dkv);
  memory.run(backward);
  EXPECT_EQ(memory.values(backward.dq), dq);
  EXPECT_EQ(memory.values(backward.dkv), dkv);
}

TEST(AttentionTiles, UnseenRowsAreEmptyAndMergeLater) {
  Tile t{.q_first = 4, .q_rows = 2, .k_rows = 4, .starts = {0, 2, 5}};  // token 5 sees itself alone
  KernelCase memory;
  auto op = op_of<AttentionForward>(t, memory);
  op.o = memory.write(Dtype::f32, 128);
  op.lse = memory.write(Dtype::f32, 2);
  memory.run(op);
  EXPECT_TRUE(std::isfinite(memory.values(op.lse)[0]));
  EXPECT_EQ(memory.values(op.lse)[1], kNothing);
  std::vector<double> o = memory.values(op.o);
  EXPECT_EQ(std::vector<double>(o.begin() + 64, o.end()), std::vector<double>(64, 0.0));
  op.k_first = 4, op.k_rows = 2;
  op.o.accumulate = op.lse.accumulate = true;
  const std::vector<double> kv = memory.values(op.kv);
  memory.run(op);
  o = memory.values(op.o);
  EXPECT_EQ(std::vector<double>(o.begin() + 64, o.end()),
            std::vector<double>(kv.begin() + 192, kv.begin() + 256));
}

TEST(AttentionTiles, Limits) {
  AttentionForward op;
  op.q_rows = op.k_rows = 1 << 20, op.heads = 8, op.kv_heads = 2, op.head_dim = 128;
  EXPECT_TRUE(cuda::serves(op, Dtype::bf16));
  EXPECT_FALSE(cuda::serves(op, Dtype::f32));
  for (const std::int64_t size : {0, 4, 100, 264}) {
    op.head_dim = size;
    EXPECT_FALSE(cuda::serves(op, Dtype::bf16)) << size;
  }
  op.head_dim = 256, op.kv_heads = 3;
  EXPECT_FALSE(cuda::serves(op, Dtype::bf16));
  op.kv_heads = 1, op.scale = 0;
  EXPECT_FALSE(cuda::serves(op, Dtype::bf16));
}

TEST(AttentionDelta, IsTheSumOfARow) {
  for (const Dtype o : {Dtype::f32, Dtype::bf16}) {
    for (const Dtype dout : {Dtype::f32, Dtype::bf16}) {
      for (const std::int64_t size : {1, 37, 40, 128}) {
        KernelCase memory;
        AttentionDelta op;
        op.rows = 23, op.heads = 3, op.head_dim = size;
        op.o = memory.put_random(o, 69 * size);
        op.dout = memory.put_random(dout, 69 * size);
        op.delta = memory.write(Dtype::f32, 69);
        memory.run(op);
        const auto a = memory.values(op.o), b = memory.values(op.dout);
        std::vector<double> delta(69, 0.0);
        for (std::size_t i = 0; i < a.size(); ++i) delta[i / index(size)] += a[i] * b[i];
        const auto terms = static_cast<double>(size);
        expect_close(memory.values(op.delta), delta, terms * terms * kUnit, Dtype::f32);
      }
    }
  }
}

}  // namespace
}  // namespace fpdt
