// S5xx: attention tiles, heads and gradient chunks.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/schedule/verify.h"

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

AttentionBackward& tile(Schedule& schedule, std::string_view op) {
  return test::body_of<AttentionBackward>(schedule, "backward", op);
}

TEST(Coverage, ATileTwiceOverlaps) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").k_first = 0;
  const Codes found = test::codes(schedule);
  EXPECT_EQ(found, (Codes{"S501"})) << "the same area, but not the same pairs";
}

TEST(Coverage, AMissingTileLeavesPairs) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").k_first = 24;
  EXPECT_EQ(test::codes(schedule), Codes{"S502"}) << "moved above the diagonal";
}

TEST(Coverage, AShortTileLeavesPairs) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").q_first.a += 1;
  EXPECT_EQ(test::codes(schedule), Codes{"S502"});
}

// Of 24 tokens in chunks of 8: with a window, some tiles of the triangle see nothing.
TEST(Coverage, AWindowHasABand) {
  const Schedule whole = test::golden("fpdt_backward.json");
  const auto with_window = [&](std::int64_t window, std::string_view without) {
    Schedule schedule = whole;
    auto& ops = test::block_of(schedule, "backward").ops;
    for (Op& op : ops) {
      auto* body = std::get_if<AttentionBackward>(&op.body);
      if (body == nullptr) continue;
      body->window = window;
      if (op.name == without) body->k_first = 24;  // above the diagonal
    }
    return test::codes(schedule);
  };
  EXPECT_EQ(with_window(5, ""), Codes{});
  // The first keys are too old for the last queries. Only the place of the keys is wrong then.
  EXPECT_EQ(with_window(9, "attn.0.2"), Codes{"S702"});
  EXPECT_EQ(with_window(10, "attn.0.2"), Codes{"S502"});
  EXPECT_EQ(with_window(9, "attn.1.2"), Codes{"S502"});
  Schedule mixed = whole;
  tile(mixed, "attn.1.2").window = 9;
  EXPECT_EQ(test::codes(mixed), Codes{"S507"});
}

TEST(Coverage, TilesMayBeOfAnyShape) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    auto* body = std::get_if<AttentionBackward>(&op.body);
    if (body == nullptr) continue;
    body->q_first.a /= 2;
    body->q_rows /= 2;
    body->k_first.a /= 2;
    body->k_rows /= 2;
    body->q.rows = body->dout.rows = 4;
    body->dout.row_first = 8;
  }
  const Codes found = test::codes(schedule);
  EXPECT_EQ(found.count("S501") + found.count("S502"), 0u) << "half of everything covers half";
}

TEST(Coverage, HeadsAreTheSameForAllTiles) {
  Schedule schedule = test::golden("fpdt_backward.json");
  tile(schedule, "attn.1.2").head_first = {0};
  EXPECT_EQ(test::codes(schedule), Codes{"S503"});
}

TEST(Coverage, RanksHoldAllHeads) {
  Schedule schedule = test::golden("fpdt_backward.json");
  for (Op& op : test::block_of(schedule, "backward").ops) {
    if (auto* body = std::get_if<AttentionBackward>(&op.body)) body->head_first.first.b = 2;
  }
  EXPECT_EQ(test::codes(schedule), Codes{"S503"});
}

// The triangle of the ranks together, where positions depend on the rank.
class CoverageOfRanks : public testing::Test {
 protected:
  Schedule ring = test::golden("zigzag_ring_2.json");
  Schedule gathered = test::golden("lss_2.json");

  AttentionForward& forward(std::string_view op) {
    return test::body_of<AttentionForward>(ring, "forward", op);
  }
};

TEST_F(CoverageOfRanks, ATileOfAnotherRankOverlaps) {
  forward("attn_next.1.0").k_first = forward("attn.1.0").k_first;
  EXPECT_EQ(test::codes(ring), (Codes{"S501"})) << "as many pairs, but own keys twice";
}

TEST_F(CoverageOfRanks, AHopTheOtherWayIsFound) {
  // Rank 0 sees keys of rank 0, and rank 1 those after the sequence.
  forward("attn_next.0.0").k_first = RankExpression{0, {4, 0, 1, 2}};
  EXPECT_EQ(test::codes(ring).count("S501"), 1U);
}

TEST_F(CoverageOfRanks, AShortTileLeavesPairs) {
  forward("attn_next.1.1").q_first.a += 1;
  EXPECT_EQ(test::codes(ring).count("S502"), 1U);
  test::body_of<AttentionBackward>(gathered, "backward", "dattn").k_first = 1;
  EXPECT_EQ(test::codes(gathered), Codes{"S502"});
}

TEST_F(CoverageOfRanks, ReplicasDoNotShareTheirTriangles) {
  // Two pairs of ranks instead of one: the same program, and each replica has its own sequence.
  gathered.ranks = 4;
  gathered.groups[0].first = RankExpression{0, {2, 0, 2, 2}};
  const RankExpression first{0, {8, 0, 1, 2}};
  for (Block& block : gathered.blocks) {
    for (Op& op : block.ops) {
      if (auto* tile = std::get_if<AttentionForward>(&op.body)) tile->q_first = first;
      if (auto* tile = std::get_if<AttentionBackward>(&op.body)) tile->q_first = first;
      if (auto* split = std::get_if<SplitHeads>(&op.body)) split->token_first = first;
      if (auto* join = std::get_if<JoinHeads>(&op.body)) join->token_first = first;
    }
  }
  for (Feed& feed : gathered.feeds) {
    feed.replica = RankExpression{0, {1, 0, 2, 2}};
    if (feed.holds == Holds::tokens) feed.first = first;
  }
  EXPECT_EQ(test::codes(gathered), Codes{});
  for (Feed& feed : gathered.feeds) feed.replica = {};
  EXPECT_EQ(test::codes(gathered), (Codes{"S501", "S502", "S607"}));
}

TEST_F(CoverageOfRanks, HeadsOfAReplicaAreWhole) {
  for (const char* op :
       {"attn.0.0", "attn.1.0", "attn.1.1", "attn_next.0.0", "attn_next.1.0", "attn_next.1.1"}) {
    forward(op).head_first = 2;
  }
  EXPECT_EQ(test::codes(ring), Codes{"S503"});
}

// A schedule of attention tiles alone, on a ring of two to four ranks with two rows each, in one
// chunk or two. At most two tiles are changed at random.
class RandomRing {
 public:
  explicit RandomRing(std::uint32_t seed) : random_(seed) {
    schedule.ranks = 2 + below(3);
    schedule.blocks.push_back({"step", {}, {}});
    const std::int64_t ring = schedule.ranks, chunks = 1 + below(2);
    const bool gathered = below(3) == 0;
    for (std::int64_t q = 0; q < chunks; ++q) {
      for (std::int64_t k = 0; k <= q; ++k) {
        for (std::int64_t hop = 0; hop < (gathered ? 1 : ring); ++hop) {
          AttentionForward tile;
          tile.q_rows = 2;
          tile.q_first = runs(q, 0);
          tile.k_rows = gathered ? 2 * ring : 2;
          tile.k_first = gathered ? RankExpression{.a = 2 * ring * k} : runs(k, ring - hop);
          tile.heads = tile.kv_heads = tile.head_dim = 1;
          add(tile);
        }
      }
    }
    for (std::int64_t changes = below(3); changes > 0; --changes) change();
  }

  // Whether the tiles of all ranks count every pair of the triangle once, and no other. Those that
  // do not move count for one rank, which repeats what the others do.
  [[nodiscard]] bool covers() const {
    std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
    std::int64_t end = 0;
    const std::vector<Op>& ops = schedule.blocks[0].ops;
    const bool moves = std::any_of(ops.begin(), ops.end(), [](const Op& op) {
      const auto& tile = std::get<AttentionForward>(op.body);
      return !is_constant(tile.q_first) || !is_constant(tile.k_first);
    });
    for (const Op& op : ops) {
      const auto& tile = std::get<AttentionForward>(op.body);
      for (std::int64_t rank = 0; rank < (moves ? schedule.ranks : 1); ++rank) {
        const std::int64_t q_first = tile.q_first.at(rank), k_first = tile.k_first.at(rank);
        end = std::max(end, q_first + tile.q_rows);
        for (std::int64_t q = q_first; q < q_first + tile.q_rows; ++q) {
          for (std::int64_t k = k_first; k < k_first + tile.k_rows; ++k) {
            if (k <= q) ++counts[{q, k}];
          }
        }
      }
    }
    for (std::int64_t q = 0; q < end; ++q) {
      for (std::int64_t k = 0; k <= q; ++k) {
        if (counts[{q, k}] != 1) return false;
      }
    }
    return std::ssize(counts) == end * (end + 1) / 2;
  }

  Schedule schedule;

 private:
  std::int64_t below(std::uint32_t n) { return static_cast<std::int64_t>(random_() % n); }
  // A chunk's runs, reversed in the second.
  [[nodiscard]] RankExpression runs(std::int64_t chunk, std::int64_t shift) const {
    const std::int64_t ring = schedule.ranks, first = 2 * ring * chunk;
    const bool reversed = chunk == 1;
    return {first + (reversed ? 2 * (ring - 1) : 0), {reversed ? -2 : 2, shift % ring, 1, ring}};
  }
  void add(const AttentionForward& tile) {
    std::vector<Op>& ops = schedule.blocks[0].ops;
    ops.push_back({std::to_string(named_++), {}, tile, {}});
  }
  void change() {
    std::vector<Op>& ops = schedule.blocks[0].ops;
    const auto at = static_cast<std::size_t>(below(static_cast<std::uint32_t>(ops.size())));
    auto& tile = std::get<AttentionForward>(ops[at].body);
    RankExpression& first = below(2) == 0 ? tile.q_first : tile.k_first;
    switch (below(8)) {
      case 0:
        first.first.s = below(5);
        break;
      case 1:
        first.a += 2 * below(3);
        break;
      case 2:
        first.first.b = -first.first.b;
        break;
      case 3:
        first.first.n = 1 + below(4);
        break;
      case 4:
        (below(2) == 0 ? tile.q_rows : tile.k_rows) += 1 + below(2);
        break;
      case 6:
        first.first.b *= 2;
        break;
      case 5:
        add(AttentionForward(tile));
        break;
      default:
        if (ops.size() > 1) ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  std::mt19937 random_;
  int named_ = 0;
};

TEST(CoverageOfRings, WhatIsProvenCoversEachPairOnce) {
  int proven = 0, sound = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const RandomRing ring(seed);
    const Codes codes = test::codes(ring.schedule);
    if (codes.contains("S205")) continue;  // positions out of range are found before
    const bool found = codes.contains("S501") || codes.contains("S502");
    sound += ring.covers() ? 1 : 0;
    if (found) continue;
    ++proven;
    EXPECT_TRUE(ring.covers()) << "seed " << seed;
  }
  EXPECT_GT(proven, 900);
  EXPECT_GT(proven, sound - 20) << "overlaps that nobody sees are refused, and they are few";
}

TEST(Coverage, GradientChunksOverlap) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.1.0").local_first = 2;
  EXPECT_EQ(test::codes(schedule), (Codes{"S504", "S505"})) << "two rows twice, two rows never";
}

TEST(Coverage, AMissingGradientChunkLeavesAGap) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.1.0").local_first = -1;
  EXPECT_EQ(test::codes(schedule), (Codes{"S505", "S605"}));
}

TEST(Coverage, GradientsOfABlockEndTogether) {
  Schedule schedule = test::golden("tied_head.json");
  test::body_of<Matmul>(schedule, "head", "dtable.2.0").local_first = -1;
  EXPECT_EQ(test::codes(schedule), (Codes{"S506", "S605"}));
}

}  // namespace
}  // namespace fpdt
