// Layers of experts against the reference, over meshes, layouts, loops and residencies; and bytes
// that do not depend on what the router does.
#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "against_reference.h"
#include "cases.h"

namespace fpdt {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kDrawn = 40;  // up to ten times slower each
#else
constexpr std::size_t kDrawn = 200;
#endif

struct Grid {
  std::int64_t ranks, ring, replicas = 1;
};
constexpr std::array kGrids{Grid{1, 1}, Grid{2, 1}, Grid{4, 1},   Grid{2, 2},
                            Grid{3, 3}, Grid{4, 2}, Grid{4, 1, 2}};

// What gpt-oss and GLM have, without another draw.
void add_likenesses(const Grid& grid, Case& one) {
  Strategy& strategy = one.strategy;
  ModelSpec& like = one.problem.model;
  const std::int64_t experts = like.experts, active = like.active_experts;
  like.joint_qk_norm = like.qk_norm && (experts + strategy.micro_batches) % 2 == 0;
  like.bias = (experts + strategy.zero) % 2 == 0;
  like.sinks = (active + strategy.zero) % 2 == 0;
  if (grid.ranks % 2 == 0) like.activation = ActivationFamily::clamped_swiglu;
  if ((experts + active + grid.ring) % 3 == 0) like.shared_feed_forward = 8;
  if ((active + strategy.micro_batches) % 3 == 0) like.expert_scale = 2.5;
  const bool sums = grid.ranks > 1 && strategy.zero >= 2;  // somewhere
  if (sums && (active + grid.ring) % 2 == 0) {
    strategy.tiles.expert_slices = experts < 8 ? experts : 4;
    strategy.keep = kStateHomes[static_cast<std::size_t>(experts + strategy.micro_batches) % 4];
    const bool outside = (strategy.copies.prefetch_depth + strategy.micro_batches) % 2 == 0;
    if (outside) strategy.tiles.expert_loop = ExpertLoop::slices;
  }
  const std::int64_t dense = (experts + grid.ranks + strategy.zero) % 4;
  if (dense == 1 || dense == 2) {
    LayerKind first = like.kinds.front();
    first.name = "dense";
    first.dense_feed_forward = 20;
    like.kinds.front().name = "experts";
    like.kinds.insert(like.kinds.begin(), first);
    like.leading.assign(static_cast<std::size_t>(dense), 0);
    like.pattern = {1};
  }
}

// One of everything, drawn; `check` may refuse it.
Case draw(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto of = [&](const auto& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::uint32_t>(list.size())))];
  };
  constexpr std::array<std::int64_t, 3> kHalves{0, 1, 2}, kHeads{4, 2, 1}, kSegments{1, 2, 3};
  constexpr std::array<std::int64_t, 4> kExperts{1, 3, 5, 8};
  const Grid grid = of(kGrids);
  const std::int64_t experts = of(kExperts),
                     active =
                         1 + below(static_cast<std::uint32_t>(std::min<std::int64_t>(experts, 4)));
  ModelSpec model = below(2) == 0 ? tiny_llama() : tiny_qwen3();
  model.experts = experts;
  model.active_experts = active;
  model.normalised_experts = below(2) == 0;
  model.kv_heads = of(kHeads);
  model.layers = 3;
  if (below(3) == 0) model.kinds.front().window = 7;
  Case one = make_case(model, grid.ranks, 41, 12);
  one.problem.documents = below(2) == 0;
  Strategy& strategy = one.strategy;
  strategy.mesh.replicas = grid.replicas;
  strategy.mesh.ring = grid.ring;
  if (grid.ring > 1) {
    strategy.keys = below(2) == 0 ? Keys::ring : Keys::gathered;
    if (below(2) == 0) strategy.layout = Layout::zigzag;
  }
  if (below(6) == 0) strategy.tiles.chunk_tokens = 48;
  strategy.tiles.ffn_rows = of(std::array<std::int64_t, 3>{0, 1, 3});
  strategy.zero = below(4);
  strategy.micro_batches = 1 + below(2);
  strategy.tiles.backward_order = below(2) == 0 ? BackwardOrder::kv_outer : BackwardOrder::q_outer;
  strategy.copies.prefetch_depth = below(3);
  strategy.copies.duplex = below(2) == 0;
  strategy.copies.overlap_all_to_all = below(2) == 0;
  if (below(3) == 0) strategy.offload_states(true);
  strategy.copies.optimizer_tile = 1024;
  if (below(4) == 0) strategy.storage = Storage::bf16;
  if (below(5) == 0) strategy.extent = Extent::whole;
  if (below(3) == 0) strategy.queries = Queries::again;
  if (below(3) == 0) strategy.layer_gradients = LayerGradients::in_inputs;
  strategy.segments = {of(kSegments)};
  strategy.layer_classes.assign(static_cast<std::size_t>(1 + below(2)), LayerClass{});
  if (strategy.layer_classes.size() == 2) strategy.layer_classes.front().layers = 1;
  for (LayerClass& layers : strategy.layer_classes) {
    layers.recompute = static_cast<Recompute>(below(2));
    layers.first_stored_chunk = below(3) == 0 ? 1 : 0;
    for (double& kept : layers.keep) kept = static_cast<double>(of(kHalves)) / 2;
  }
  if ((active + grid.ranks + strategy.micro_batches) % 2 == 0) {
    one.problem.model.balance_loss = grid.ring == 2 ? 0 : 0.3;
    one.problem.model.z_loss = grid.ring == 2 || experts % 2 == 0 ? 0.05 : 0;
  } else {
    // The router's bias of one expert is a sum of terms that cancel.
    one.problem.model.sigmoid_router = experts > 1 && (experts + active) % 2 == 0;
  }
  add_likenesses(grid, one);
  const ModelSpec& like = one.problem.model;
  one.name = fmt::format(
      "experts{}_{}of_ranks{}_ring{}{}{}{}{}", experts, active, grid.ranks, grid.ring,
      like.bias ? "_bias" : "", like.shared_feed_forward > 0 ? "_shared" : "",
      like.leading.empty() ? "" : "_dense", one.strategy.tiles.expert_slices > 1 ? "_slices" : "");
  return one;
}

class Experts : public testing::TestWithParam<Case> {};

TEST_P(Experts, EqualReference) { expect_equals_reference(GetParam()); }

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Drawn, Experts, testing::ValuesIn(drawn_cases(kDrawn, 20261127, draw)),
                         name_of);

// Where all logits are equal, all rows take the first experts; and one whose logit is large for
// half of the tokens and small for the others divides them. The schedule, and with it the arena, is
// the same whatever the router does.
TEST(Routers, MayDoAsTheyLike) {
  Case one = make_case(tiny_experts(5, 2), 2, 41, 12);
  one.problem.model.balance_loss = 0;  // it moves experts that are asked equally by equal amounts
  for (const char* what : {"equal", "divided"}) {
    Rig rig(one, Rig::in_order());
    rig.trainer.set_parameters(random_parameters(3));
    for (std::int64_t layer = 0; layer < one.problem.model.layers; ++layer) {
      const std::string name = layer_tensor_name(layer, "router.weight");
      std::vector<float> weights(static_cast<std::size_t>(5 * one.problem.model.hidden), 0.0F);
      if (what == std::string("divided")) weights[2 * 16] = 100;
      for (const char* kind : {"parameter", "weight"}) {
        rig.trainer.set_tensor(name, kind, weights);
      }
    }
    const auto samples = random_samples(one.problem, rig.trainer.samples_per_step(), 3);
    const CheckReport report = check_step(rig.trainer, samples, 1e-2);
    EXPECT_TRUE(report.agrees()) << what;
    for (const TensorCheck& tensor : report.tensors) {
      EXPECT_TRUE(tensor.agrees) << what << " " << tensor.tensor << " " << tensor.gradient;
    }
  }
}

TEST(ExpertsOfOne, AreADenseFeedForward) {
  // One expert that every token takes, of weight 1, computes what a dense layer does.
  Case dense = make_case(tiny_llama(), 2, 41, 12);
  Case one = dense;
  one.problem.model = tiny_experts(1, 1);
  one.problem.model.balance_loss = 0;
  Rig with(one, Rig::in_order()), without(dense, Rig::in_order());
  const auto samples = random_samples(one.problem, 1, 3);
  EXPECT_EQ(with.trainer.step(samples, 1e-2).loss, without.trainer.step(samples, 1e-2).loss);
  EXPECT_EQ(with.trainer.tensor("layers.0.down.weight", "gradient"),
            without.trainer.tensor("layers.0.down.weight", "gradient"));
}

TEST(ExpertsRefuse, StoringTheirRows) {
  Case one = make_case(tiny_experts(4, 2), 1, 24, 12);
  one.strategy.layer_classes.front().recompute = Recompute::keep_all;
  const std::vector<Diagnostic> findings = check(one.problem, one.strategy);
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings.front().message.find("use keep_attention"), std::string::npos);
  one.strategy.layer_classes.front().recompute = Recompute::keep_attention;
  EXPECT_TRUE(check(one.problem, one.strategy).empty());
  one = make_case(tiny_experts(4, 2), 2, 24, 12);
  one.strategy.mesh.tensor = 2;
  const std::vector<Diagnostic> tensor = check(one.problem, one.strategy);
  ASSERT_FALSE(tensor.empty());
  EXPECT_NE(tensor.front().message.find("experts of tiny-experts are not cut"), std::string::npos);
}

TEST(ExpertsRefuse, SlicesThatDoNotServe) {
  Case one = make_case(tiny_experts(8, 2), 2, 24, 12);
  one.strategy.zero = 3;
  const auto finding = [&](std::int64_t slices) {
    one.strategy.tiles.expert_slices = slices;
    const std::vector<Diagnostic> findings = check(one.problem, one.strategy);
    return findings.empty() ? "" : findings.front().message;
  };
  EXPECT_EQ(finding(4), "");
  EXPECT_EQ(finding(3), "tiles.expert_slices: 3 does not divide 8 experts; use 2");
  EXPECT_EQ(finding(-1), "tiles.expert_slices: -1 does not divide 8 experts; use 1");
  EXPECT_EQ(finding(99), "tiles.expert_slices: 99 does not divide 8 experts; use 8");
  one.strategy.zero = 1;
  EXPECT_NE(finding(4).find("needs several ranks and zero 2 or 3"), std::string::npos);
}

TEST(ExpertsRefuse, MorePairsThanAreCounted) {
  Case one = make_case(tiny_experts(4, 2), 1, std::int64_t{1} << 30, std::int64_t{1} << 30);
  const std::vector<Diagnostic> findings = check(one.problem, one.strategy);
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings.front().message.find("tiles.ffn_rows"), std::string::npos)
      << findings.front().message;
  EXPECT_NE(findings.front().message.find("use at most 536870910"), std::string::npos)
      << findings.front().message;
}

}  // namespace
}  // namespace fpdt
