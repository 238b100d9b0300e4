// Amounts against numbers worked out by hand, and against the whole triangle of a lowered step.
#include "fpdt/cost/demand.h"

#include <algorithm>
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"

#include "problems.h"

namespace fpdt {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class DemandOf : public ::testing::Test {
 protected:
  DemandOf() {
    schedule_.ranks = 8;
    schedule_.groups = {{"one", 1, 1, {}}, {"sp", 4, 1, {}}, {"dp", 2, 4, {}}};
  }

  Operand buffer(Dtype dtype, std::vector<std::int64_t> shape,
                 MemorySpace space = MemorySpace::device) {
    Buffer one;
    one.space = space;
    one.dtype = dtype;
    one.shape = std::move(shape);
    schedule_.buffers.push_back(one);
    return {static_cast<BufferIndex>(schedule_.buffers.size() - 1), {}, 0, -1};
  }
  [[nodiscard]] Demand of(Body body, std::int64_t rank = 0) const {
    Op op;
    op.body = std::move(body);
    return demand(schedule_, op, rank);
  }

  Schedule schedule_;
};

// llama3-8b on 4 GPUs: 8 query heads and 2 KV heads of 128 on each.
class LlamaTile : public DemandOf {
 protected:
  static constexpr std::int64_t kRows = 65536;

  AttentionForward forward(std::int64_t q_first, std::int64_t k_first) {
    AttentionForward tile;
    tile.q = buffer(Dtype::bf16, {kRows, 8 * 128});
    tile.kv = buffer(Dtype::bf16, {kRows, 2 * 2 * 128});
    tile.documents = buffer(Dtype::i32, {1 << 21});
    tile.o.operand = buffer(Dtype::f32, {kRows, 8 * 128});
    tile.lse.operand = buffer(Dtype::f32, {kRows, 8});
    tile.q_first = q_first;
    tile.k_first = k_first;
    tile.q_rows = tile.k_rows = kRows;
    tile.heads = 8;
    tile.kv_heads = 2;
    tile.head_dim = 128;
    return tile;
  }
};

TEST_F(LlamaTile, DependsOnTheRankWhereItsPositionDoes) {
  AttentionForward tile = forward(0, 0);
  tile.q_first = RankExpression{0, {kRows, 0, 1, 3}};
  EXPECT_EQ(of(tile, 0).flops, of(forward(0, 0)).flops);
  EXPECT_EQ(of(tile, 2).flops, of(forward(2 * kRows, 0)).flops);
  tile.k_first = 2 * kRows;
  EXPECT_EQ(of(tile, 1).flops, 0);
  EXPECT_EQ(of(tile, 1).bytes, 0) << "nothing is seen";
  EXPECT_GT(of(tile, 2).bytes, 0);
}

TEST_F(LlamaTile, CountsTheWholeSquareBelowTheDiagonal) {
  AttentionForward tile = forward(kRows, 0);
  tile.o.accumulate = tile.lse.accumulate = true;
  const Demand asked = of(tile);
  EXPECT_EQ(asked.work, Work::attention_forward);
  EXPECT_EQ(kBodyNames[static_cast<std::size_t>(asked.kind)], "attention_forward");
  EXPECT_EQ(asked.flops, 17592186044416.0);  // 4 * 128 * 8 * 2^32
  EXPECT_EQ(asked.size, kRows);
  // q and kv are read. The f32 output and its lse are read and written.
  EXPECT_EQ(asked.bytes, (128 + 64 + 2 * 256 + 2 * 2) * kMiB);
}

TEST_F(LlamaTile, CountsHalfOnTheDiagonal) {
  const Demand asked = of(forward(kRows, kRows));
  EXPECT_EQ(asked.flops, 4096.0 * (65536.0 * 65537.0 / 2));
  EXPECT_EQ(asked.bytes, (128 + 64 + 256 + 2) * kMiB);
}

TEST_F(LlamaTile, AsksForNothingAboveTheDiagonal) {
  const Demand asked = of(forward(0, kRows));
  EXPECT_EQ(asked.flops, 0);
  EXPECT_EQ(asked.bytes, 0);
}

TEST_F(LlamaTile, CostsTwoAndAHalfTimesAsMuchBackward) {
  AttentionBackward tile;
  tile.q = tile.dout = buffer(Dtype::bf16, {kRows, 1024});
  tile.kv = buffer(Dtype::bf16, {kRows, 512});
  tile.lse = tile.delta = buffer(Dtype::f32, {kRows, 8});
  tile.dq.operand = buffer(Dtype::f32, {kRows, 1024});
  tile.dkv.operand = buffer(Dtype::f32, {kRows, 512});
  tile.dq.accumulate = true;
  tile.q_first = tile.q_rows = tile.k_rows = kRows;
  tile.heads = 8;
  tile.kv_heads = 2;
  tile.head_dim = 128;
  const Demand asked = of(tile);
  EXPECT_EQ(asked.work, Work::attention_backward);
  EXPECT_EQ(asked.flops, 2.5 * 17592186044416.0);
  EXPECT_EQ(asked.bytes, (2 * 128 + 64 + 2 * 2 + 2 * 256 + 128) * kMiB);
}

// The same rank's tiles by a library: 32K queries, the last of 96K keys. The keys are cut into 64K
// and 32K.
// A query of a window has two edges, whatever the tiles: the last key that it sees, and the first.
TEST_F(LlamaTile, OfAWindowHasTwoEdges) {
  AttentionForward tile = forward(0, 0);
  EXPECT_EQ(of(tile).masked, 0) << "rates know of the diagonal";
  const auto masked = [&](std::int64_t q_first, std::int64_t k_first) {
    tile = forward(q_first, k_first);
    tile.window = kRows / 2;
    return of(tile).masked / static_cast<double>(tile.heads);
  };
  EXPECT_EQ(masked(0, 0), 80 * (kRows + kRows / 2)) << "the first queries see the first key";
  EXPECT_EQ(masked(kRows, kRows) + masked(kRows, 0), 80 * 2 * kRows);
}

class LibraryTile : public DemandOf {
 protected:
  static constexpr std::int64_t kRows = 32768;
  static constexpr std::int64_t kQueries = kRows * 8 * 128;   // elements of q
  static constexpr std::int64_t kKeys = kRows * 2 * 2 * 128;  // elements of kv in 32K keys

  template <class Tile>
  Tile tile(std::int64_t k_rows) {
    Tile one;
    one.q = buffer(Dtype::bf16, {kRows, 8 * 128});
    one.kv = buffer(Dtype::bf16, {k_rows, 2 * 2 * 128});
    one.workspace = buffer(Dtype::f32, {1 << 28});
    one.q_first = k_rows - kRows;
    one.q_rows = kRows;
    one.k_rows = k_rows;
    one.heads = 8;
    one.kv_heads = 2;
    one.head_dim = 128;
    return one;
  }
};

// Its rates know of the diagonal. The edge of a window takes as long as 640 keys, or 1500 in
// backward.
TEST_F(LibraryTile, OfAWindowHasOneEdge) {
  auto one = tile<AttentionForward>(kRows);
  one.o.operand = buffer(Dtype::f32, {kRows, 8 * 128});
  EXPECT_EQ(of(one).masked, 0);
  one.window = kRows / 4;
  EXPECT_EQ(of(one).masked, 8.0 * 640 * (kRows - kRows / 4)) << "the first queries see all before";
  auto back = tile<AttentionBackward>(kRows);
  back.window = kRows / 4;
  EXPECT_EQ(of(back).masked, 8.0 * 1500 * (kRows - kRows / 4));
}

TEST_F(LibraryTile, MergesEveryPiece) {
  auto one = tile<AttentionForward>(kRows);
  one.o.operand = buffer(Dtype::f32, {kRows, 8 * 128});
  one.lse.operand = buffer(Dtype::f32, {kRows, 8});
  const std::int64_t lse = 4 * kRows * 8;
  // The output is written in f32 instead of bf16, read, and written; then it is also merged.
  EXPECT_EQ(of(one).partial, (2 + 4 + 4) * kQueries + 2 * lse);
  one.o.accumulate = one.lse.accumulate = true;
  EXPECT_EQ(of(one).partial, (2 + 4 + 8) * kQueries + 3 * lse);
  auto longer = tile<AttentionForward>(3 * kRows);
  longer.o = one.o;
  longer.lse = one.lse;
  EXPECT_EQ(of(longer).partial, 2 * of(one).partial);
  one.o.operand = buffer(Dtype::bf16, {kRows, 8 * 128});
  EXPECT_EQ(of(one).partial, (2 + 4 + 4) * kQueries + 3 * lse);
  one.workspace = {};
  EXPECT_EQ(of(one).partial, 0) << "ours adds where it computes";
}

TEST_F(LibraryTile, AddsUpGradientsOfEveryPiece) {
  auto one = tile<AttentionBackward>(kRows);
  one.dout = one.q;
  one.lse = one.delta = buffer(Dtype::f32, {kRows, 8});
  one.dq.operand = buffer(Dtype::f32, {kRows, 8 * 128});
  one.dkv.operand = buffer(Dtype::f32, {3 * kRows, 512});
  const std::int64_t rows = 3 * 4 * kRows * 8;  // lse and delta
  // dout is read and its stand-in written. dq is zeroed, read and written. dk and dv of four
  // members are read, and their sums written.
  EXPECT_EQ(of(one).partial, (2 + 2 + 4 + 4 + 4) * kQueries + rows + (4 * 4 + 4) * kKeys);
  one.dq.accumulate = one.dkv.accumulate = true;
  const std::int64_t adding = (2 + 2 + 4 + 4 + 8) * kQueries + rows + (4 * 4 + 8) * kKeys;
  EXPECT_EQ(of(one).partial, adding);
  // Two pieces take two passes over the queries and three times the keys.
  auto longer = tile<AttentionBackward>(3 * kRows);
  longer.dout = longer.q;
  longer.lse = longer.delta = one.lse;
  longer.dq = one.dq;
  longer.dkv = one.dkv;
  EXPECT_EQ(of(longer).partial, 2 * adding + (4 * 4 + 8) * kKeys);
  one.workspace = {};
  EXPECT_EQ(of(one).partial, 0);
}

// 32 heads and 8 KV heads: a launch has one member of each KV head, so there are four sums.
TEST_F(LibraryTile, AddsUpEveryLaunch) {
  auto one = tile<AttentionBackward>(kRows);
  one.dout = one.q = buffer(Dtype::bf16, {kRows, 32 * 128});
  one.lse = one.delta = buffer(Dtype::f32, {kRows, 32});
  one.dq.operand = buffer(Dtype::f32, {kRows, 32 * 128});
  one.dkv.operand = buffer(Dtype::f32, {kRows, 2 * 8 * 128});
  one.heads = 32;
  one.kv_heads = 8;
  EXPECT_EQ(of(one).partial,
            4 * (16 * kQueries + 3 * 4 * kRows * 8) + 4 * (4 * 4 + 4 * 4 + 3 * 4) * kKeys);
}

TEST_F(LibraryTile, AsksForNothingAboveTheDiagonal) {
  auto one = tile<AttentionForward>(kRows);
  one.o.operand = buffer(Dtype::f32, {kRows, 8 * 128});
  one.lse.operand = buffer(Dtype::f32, {kRows, 8});
  one.k_first = 2 * kRows;
  EXPECT_EQ(of(one).partial, 0);
}

TEST(VisiblePairs, AreThoseThatCountingFinds) {
  for (const std::int64_t q_first : {0, 1, 5, 8}) {
    for (const std::int64_t q_rows : {1, 3, 8}) {
      for (const std::int64_t k_first : {0, 1, 4, 6, 20}) {
        for (const std::int64_t k_rows : {1, 2, 7}) {
          std::int64_t pairs = 0;
          for (std::int64_t q = q_first; q < q_first + q_rows; ++q) {
            for (std::int64_t k = k_first; k < k_first + k_rows; ++k) pairs += k <= q ? 1 : 0;
          }
          EXPECT_EQ(visible_pairs(q_first, q_rows, k_first, k_rows), pairs)
              << q_first << " " << q_rows << " " << k_first << " " << k_rows;
          for (const std::int64_t window : {1, 2, 5, 30}) {
            std::int64_t band = 0;
            for (std::int64_t q = q_first; q < q_first + q_rows; ++q) {
              for (std::int64_t k = k_first; k < k_first + k_rows; ++k) {
                band += k <= q && q < k + window ? 1 : 0;
              }
            }
            EXPECT_EQ(visible_pairs(q_first, q_rows, k_first, k_rows, window), band)
                << q_first << " " << q_rows << " " << k_first << " " << k_rows << " " << window;
          }
        }
      }
    }
  }
}

// out[64,32] = a[64,16] * b[16,32] + bias + addend, cut from flat buffers that hold more.
TEST_F(DemandOf, MatmulCountsWhatItMultiplies) {
  Matmul op;
  op.a = buffer(Dtype::bf16, {1 << 20});
  op.b = buffer(Dtype::bf16, {1 << 20});
  op.bias = buffer(Dtype::bf16, {1 << 20});
  op.addend = buffer(Dtype::bf16, {64, 32});
  op.out.operand = buffer(Dtype::f32, {64, 32});
  op.m = 64;
  op.n = 32;
  op.k = 16;
  const Demand asked = of(op);
  EXPECT_EQ(asked.work, Work::matmul);
  EXPECT_EQ(asked.flops, 2.0 * 64 * 32 * 16);
  EXPECT_EQ(asked.size, 16);
  EXPECT_EQ(asked.bytes, 2 * (64 * 16 + 16 * 32 + 32 + 64 * 32) + 4 * 64 * 32);
  EXPECT_EQ(asked.partial, 0);
  // The target is read and written after the arithmetic.
  op.out.accumulate = true;
  EXPECT_EQ(of(op).bytes, asked.bytes - 4 * 64 * 32);
  EXPECT_EQ(of(op).partial, 2 * 4 * 64 * 32);
}

TEST_F(DemandOf, RowsOfAnOperandAreWhatItCuts) {
  Operand source = buffer(Dtype::f32, {100, 8});
  source.row_first = 10;
  source.rows = 5;
  const Demand asked = of(SquaredNorm{source, {buffer(Dtype::f32, {1}), true}});
  EXPECT_EQ(asked.work, Work::memory);
  EXPECT_EQ(asked.bytes, 5 * 8 * 4 + 2 * 4);
  EXPECT_EQ(asked.flops, 0);
}

// Bytes per element as in docs/gpu.md and beside the kernels.
TEST_F(DemandOf, KernelsMoveTheirNapkins) {
  constexpr std::int64_t kRows = 64, kWidth = 4096, kElements = kRows * kWidth;
  const auto wide = [&](Dtype dtype, std::int64_t times = 1) {
    return buffer(dtype, {kRows, times * kWidth});
  };
  const auto of_element = [&](Body body) {
    return static_cast<double>(of(std::move(body)).bytes) / static_cast<double>(kElements);
  };
  const Operand bf16 = wide(Dtype::bf16), f32 = wide(Dtype::f32);
  const Operand weight = buffer(Dtype::bf16, {kWidth});
  const Operand column = buffer(Dtype::f32, {kRows}), one = buffer(Dtype::f32, {1});
  constexpr double kSmall = 0.1;  // for what does not grow with the rows
  EXPECT_NEAR(of_element(Norm{bf16, weight, {}, {bf16, false}}), 4, kSmall);
  NormBackward back{bf16, weight, bf16, {}, {bf16, false}, {}, {}};
  EXPECT_NEAR(of_element(back), 6, kSmall);
  back.addend = bf16;
  EXPECT_NEAR(of_element(back), 8, kSmall);
  // Of columns, what lies beside them is not moved.
  const auto columns = [&](auto op) {
    op.weight = weight;
    op.rows = kRows, op.width = kWidth, op.stride = 3 * kWidth;
    return of_element(op);
  };
  NormColumns part;
  part.values = {wide(Dtype::bf16, 3), true};
  EXPECT_NEAR(columns(part), 4, kSmall);
  NormColumnsBackward part_back;
  part_back.x = wide(Dtype::bf16, 3);
  part_back.gradient = {wide(Dtype::bf16, 3), true};
  EXPECT_NEAR(columns(part_back), 6, kSmall);
  SplitHeads split;
  split.qkv = wide(Dtype::bf16, 3);
  split.q.operand = bf16;
  split.kv.operand = wide(Dtype::bf16, 2);
  EXPECT_NEAR(of_element(split), 3 * 4, kSmall);
  JoinHeads join;
  join.dq = bf16;
  join.dkv = split.kv.operand;
  join.dqkv.operand = split.qkv;
  EXPECT_NEAR(of_element(join), 3 * 4, kSmall);
  EXPECT_NEAR(of_element(AttentionDelta{bf16, bf16, {column, false}}), 4, kSmall);
  EXPECT_NEAR(of_element(Permute{bf16, {bf16, false}}), 4, kSmall);
  const Operand two = wide(Dtype::bf16, 2);
  EXPECT_NEAR(of_element(Activation{two, {bf16, false}}), 6, kSmall);
  EXPECT_NEAR(of_element(ActivationBackward{two, bf16, {two, false}}), 10, kSmall);
  EXPECT_NEAR(of_element(LossStatistics{f32, column, {column, false}}), 4, kSmall);
  EXPECT_NEAR(of_element(LossGradient{f32, column, column, one, {bf16, false}}), 6, kSmall);
  EXPECT_NEAR(of_element(Copy{f32, {bf16, false}}), 6, kSmall);
  EXPECT_NEAR(of_element(SquaredNorm{f32, {one, true}}), 4, kSmall);
  AdamW step;
  step.grad = step.master = step.m = step.v = f32;
  step.master_out.operand = step.m_out.operand = step.v_out.operand = f32;
  step.param.operand = bf16;
  EXPECT_NEAR(of_element(step), 30, kSmall);
}

TEST_F(DemandOf, LookUpsTouchTheirRowsOnly) {
  const Operand table = buffer(Dtype::bf16, {128256, 4096});
  const Operand tokens = buffer(Dtype::i32, {100});
  Embedding op;
  op.tokens = tokens;
  op.table = table;
  op.x.operand = buffer(Dtype::bf16, {100, 4096});
  op.rows = 100;
  op.width = 4096;
  EXPECT_EQ(of(op).bytes, 100 * 4 + 2 * 100 * 4096 * 2);
  EmbeddingBackward back;
  back.tokens = tokens;
  back.dx = op.x.operand;
  back.dtable = {buffer(Dtype::f32, {128256, 4096}), true};
  back.rows = 100;
  back.width = 4096;
  EXPECT_EQ(of(back).bytes, 100 * 4 + 100 * 4096 * (2 + 2 * 4));
}

TEST_F(DemandOf, CopiesAreTransfersBetweenSpaces) {
  const Operand device = buffer(Dtype::bf16, {64, 8});
  const Operand other = buffer(Dtype::f32, {64, 8});
  const Operand pinned = buffer(Dtype::bf16, {64, 8}, MemorySpace::host_pinned);
  const Operand host = buffer(Dtype::bf16, {64, 8}, MemorySpace::host);
  const auto copy = [&](const Operand& from, const Operand& to) {
    const Demand asked = of(Copy{from, {to, false}});
    return std::pair(asked.work, asked.bytes);
  };
  EXPECT_EQ(copy(device, pinned), std::pair(Work::d2h, std::int64_t{1024}));
  EXPECT_EQ(copy(pinned, device), std::pair(Work::h2d, std::int64_t{1024}));
  EXPECT_EQ(copy(host, device), std::pair(Work::h2d, std::int64_t{1024}));
  EXPECT_EQ(copy(device, other), std::pair(Work::memory, std::int64_t{1024 + 2048}));
  EXPECT_EQ(copy(host, pinned), std::pair(Work::memory, std::int64_t{2048}));
}

// Bytes that one of K = 4 ranks sends: for an all-to-all of e bf16 elements, 2e(K-1)/K.
TEST_F(DemandOf, CollectivesSendToTheOthersOnly) {
  const std::int64_t e = 4096 * 1024;
  const Operand whole = buffer(Dtype::bf16, {4096, 1024});
  const Operand piece = buffer(Dtype::bf16, {1024, 1024});
  const Demand exchange = of(AllToAll{"sp", {whole, piece}, {{whole, false}, {piece, false}}});
  EXPECT_EQ(exchange.work, Work::collective);
  EXPECT_EQ(exchange.sent, 2 * (e + e / 4) * 3 / 4);
  EXPECT_EQ(exchange.group, 4);
  EXPECT_EQ(exchange.stride, 1);
  EXPECT_FALSE(exchange.ring);
  const Demand gather = of(AllGather{"sp", {piece}, {{whole, false}}});
  EXPECT_EQ(gather.sent, 2 * e * 3 / 4);
  EXPECT_TRUE(gather.ring);
  const Demand scatter = of(ReduceScatter{"sp", {whole}, {{piece, true}}});
  EXPECT_EQ(scatter.sent, 2 * e * 3 / 4);
  EXPECT_FALSE(scatter.ring);
  const Demand sum = of(AllReduce{"dp", {whole}, {{whole, true}}});
  EXPECT_EQ(sum.sent, 2 * e);
  EXPECT_EQ(sum.group, 2);
  EXPECT_EQ(sum.stride, 4);
}

TEST_F(DemandOf, ExchangesSendOnce) {
  const Operand whole = buffer(Dtype::bf16, {64, 8});
  const Demand asked = of(Exchange{"sp", {whole, whole}, {{whole, false}, {whole, false}}, 3});
  EXPECT_EQ(asked.work, Work::collective);
  EXPECT_EQ(asked.sent, 2 * 1024);
  EXPECT_EQ(asked.hop, 3);
  EXPECT_EQ(asked.peers(), 1);
}

TEST_F(DemandOf, AGroupOfOneSendsNothing) {
  const Operand whole = buffer(Dtype::bf16, {64, 8});
  const Demand asked = of(AllReduce{"one", {whole}, {{whole, false}}});
  EXPECT_EQ(asked.work, Work::memory);
  EXPECT_EQ(asked.sent, 0);
  EXPECT_EQ(asked.bytes, 2 * 1024);
}

// 61 tokens in chunks of 16 on 2 ranks.
Problem small_problem() { return test::tiny_problem(test::tiny_llama(), 2, 61); }

// Executed flops of a step, by kind of work.
std::array<double, kWorks> step_flops(const Schedule& schedule) {
  const std::vector<std::vector<Demand>> all = demands(schedule);
  std::array<double, kWorks> sums{};
  for (const Call& call : schedule.train) {
    for (const Demand& one : all[static_cast<std::size_t>(call.block)]) {
      sums[static_cast<std::size_t>(one.work)] += one.flops;
    }
  }
  return sums;
}

// The tiles of a rank add up to the triangle for its 2 heads, whatever their order and size.
TEST(LoweredStep, CountsTheTriangle) {
  const Problem problem = small_problem();
  for (const Recompute recompute : {Recompute::from_input, Recompute::keep_attention}) {
    for (const bool long_tiles : {false, true}) {
      Strategy strategy;
      strategy.tiles.chunk_tokens = 16;
      strategy.tiles.long_tiles = long_tiles;
      LayerClass& layers = strategy.layer_classes.front();
      layers.recompute = recompute;
      layers.keep[static_cast<std::size_t>(TensorClass::kv)] = long_tiles ? 1 : 0;
      const Geometry shape = geometry(problem, strategy);
      const auto tokens = static_cast<double>(shape.padded_tokens);
      const double triangle = tokens * (tokens + 1) / 2;
      const double forwards = recompute == Recompute::from_input ? 2 : 1;
      const auto flops = step_flops(lower(problem, strategy).schedule.schedule());
      const auto of = [&](Work work) { return flops[static_cast<std::size_t>(work)]; };
      EXPECT_EQ(of(Work::attention_forward), 2 * forwards * 4 * 8 * 2 * triangle);
      EXPECT_EQ(of(Work::attention_backward), 2 * 10 * 8 * 2 * triangle);
      EXPECT_GT(of(Work::matmul), 0);
    }
  }
}

// 12 rows that take 2 of 4 experts: 6 pairs each.
TEST_F(DemandOf, ExpertsIsThatOfTheirPairs) {
  GroupedMatmul product;
  product.rows = 12, product.experts = 4, product.active = 2, product.n = 10, product.k = 20;
  product.a = buffer(Dtype::bf16, {24, 20});
  product.b = buffer(Dtype::bf16, {40, 20});
  product.out.operand = buffer(Dtype::bf16, {24, 10});
  Demand asked = of(product);
  EXPECT_EQ(asked.work, Work::matmul);
  EXPECT_EQ(asked.flops, 2.0 * 24 * 10 * 20);
  EXPECT_EQ(asked.size, 6);
  EXPECT_EQ(asked.bytes, 2 * (24 * 20 + 4 * 10 * 20 + 24 * 10));
  EXPECT_TRUE(asked.own);
  GroupedGradient sum;
  sum.rows = 12, sum.experts = 4, sum.active = 2, sum.n = 10, sum.k = 20;
  sum.dy = buffer(Dtype::bf16, {24, 10});
  sum.x = buffer(Dtype::bf16, {24, 20});
  sum.sum = {buffer(Dtype::f32, {40, 20}), true};
  asked = of(sum);
  EXPECT_EQ(asked.flops, 2.0 * 24 * 10 * 20);
  EXPECT_EQ(asked.bytes, 2 * (24 * 10 + 24 * 20));
  EXPECT_EQ(asked.partial, 2 * 4 * 4 * 10 * 20) << "each sum is read and written";
}

}  // namespace
}  // namespace fpdt
