// Bytes that a rank sends in one layer of Llama 3 8B with 1M tokens on 8 ranks in bf16, against
// arithmetic by hand: 131072 tokens of a rank, query heads 4096 wide and KV heads 1024.
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/cost/demand.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/methods/method.h"

namespace fpdt {
namespace {

constexpr std::int64_t kTokens = 131072, kQueries = 4096, kKeys = 1024, kOthers = 7;

struct Sent {
  std::int64_t forward = 0, backward = 0;
};

Problem eight_billion() {
  Problem problem;
  problem.model = load_model(FPDT_SOURCE_DIR "/models/llama3-8b.yaml");
  problem.cluster = load_cluster(FPDT_SOURCE_DIR "/configs/clusters/h100-80g-x8.yaml");
  problem.documents = false;
  problem.seq_len = 8 * kTokens;
  return problem;
}

// Of collectives of the group, or of the same in reversed order, in the blocks of a layer.
Sent sent(const Problem& problem, const Strategy& strategy, std::string_view group) {
  const Schedule schedule = lower_ops(problem, strategy);
  Sent bytes;
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (!is_collective(op.body)) continue;
      if (!group_of(schedule, op.body).name.starts_with(group)) continue;
      const std::int64_t of_op = demand(schedule, op).sent;
      if (block.name == "forward") bytes.forward += of_op;
      if (block.name == "backward") bytes.backward += of_op;
    }
  }
  return bytes;
}

// Of a layer whose forward is not repeated.
Sent sent(std::int64_t ring, std::string_view group) {
  Strategy strategy = with_ring(Strategy{}, ring);
  strategy.layer_classes.front().recompute = Recompute::keep_all;
  return sent(eight_billion(), strategy, group);
}

// 2.349 GB either way (Jacobs et al., arXiv 2309.14509): q, kv and o; dout, dq and dkv. Backward
// also sends delta, an f32 for each token and head.
TEST(LayerTraffic, OfAnAllToAll) {
  const std::int64_t all = 2 * kTokens * (2 * kQueries + 2 * kKeys);
  const Sent found = sent(1, "sp");
  EXPECT_EQ(found.forward, all / 8 * kOthers);
  EXPECT_EQ(found.backward, (all + 4 * kTokens * 32) / 8 * kOthers);
}

// 3.758 GB forward: every rank gives its keys and values to all others. Backward returns their
// gradients, which the LSS Transformer (arXiv 2311.02382) does in 16 bits and a schedule in f32.
TEST(LayerTraffic, OfGatheredKeys) {
  const std::int64_t keys = kTokens * 2 * kKeys;
  const Sent found = sent(8, "ring");
  EXPECT_EQ(found.forward, 2 * keys * kOthers);
  EXPECT_EQ(found.forward, 3758096384);
  EXPECT_EQ(found.backward, 4 * keys * kOthers);
}

// 3.758 GB forward: keys and values make seven hops. Backward moves them once more, with their
// gradients: 7.516 GB where these have 16 bits, as in TransformerEngine.
TEST(LayerTraffic, OfARing) {
  Strategy strategy = with_ring(Strategy{}, 8);
  strategy.layer_classes.front().recompute = Recompute::keep_all;
  strategy.keys = Keys::ring;
  const Sent found = sent(eight_billion(), strategy, "ring");
  EXPECT_EQ(found.forward, 3758096384);
  EXPECT_EQ(found.backward, (2 + 4) * kTokens * 2 * kKeys * kOthers);
  strategy.key_gradients = Storage::bf16;
  EXPECT_EQ(sent(eight_billion(), strategy, "ring").backward, 2 * 3758096384);
}

// As published, LSS gathers once. It has no all-to-all. With a KV head for each query head, keys
// are four times as wide: 15.03 GB forward.
TEST(LayerTraffic, OfLss) {
  Problem problem = eight_billion();
  const Method& lss = *method_named("lss");
  const std::int64_t keys = kTokens * 2 * kKeys;
  const Sent found = sent(problem, lss.published(problem, 1), "ring");
  EXPECT_EQ(found.forward, 2 * keys * kOthers);
  EXPECT_EQ(found.backward, 4 * keys * kOthers);
  EXPECT_EQ(sent(problem, lss.published(problem, 1), "sp").forward, 0);
  problem.model.kv_heads = problem.model.heads;
  const Sent each = sent(problem, lss.published(problem, 1), "ring");
  EXPECT_EQ(each.forward, 15032385536);
  EXPECT_EQ(each.backward, 2 * each.forward);
}

// Gathers again in backward, 3.758 GB, and returns gradients of keys: 3.758 GB in 16 bits, twice as
// much in f32.
TEST(LayerTraffic, OfContextParallelism) {
  const Problem problem = eight_billion();
  const std::int64_t keys = kTokens * 2 * kKeys;
  const Sent found = sent(problem, method_named("allgather-cp")->published(problem, 1), "ring");
  EXPECT_EQ(found.forward, 2 * keys * kOthers);
  EXPECT_EQ(found.backward, (2 + 4) * keys * kOthers);
}

// A grid of 4 by 2: all-to-alls between two ranks, and gathers between four that have half of the
// heads of twice the tokens each.
TEST(LayerTraffic, OfBoth) {
  const std::int64_t all = 2 * kTokens * (2 * kQueries + 2 * kKeys);
  EXPECT_EQ(sent(4, "sp").forward, all / 2);
  EXPECT_EQ(sent(4, "ring").forward, 2 * (2 * kTokens) * (2 * kKeys / 2) * 3);
}

}  // namespace
}  // namespace fpdt
