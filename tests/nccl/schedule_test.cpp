// Whole steps of ranks with a GPU each, connected by NCCL: the bits of ranks that share one, and
// the bytes that the schedule sends.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/check/check.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/schedule/traffic.h"

#include "../train/cases.h"
#include "fake_runtime.h"
#include "processes.h"

namespace fpdt {
namespace {

ModelSpec wider(ModelSpec model) {
  model.hidden = 32;
  model.head_dim = 8;
  model.feed_forward = 24;
  return model;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  Case llama = make_case(wider(tiny_llama()), 2, 24, 8);
  llama.strategy.storage = Storage::bf16;
  llama.strategy.micro_batches = 2;
  llama.strategy.offload_states(true);
  llama.strategy.copies.optimizer_tile = 1024;
  llama.name = "llama_2";
  all.push_back(llama);
  Case gpt = make_case(wider(tiny_gpt()), 4, 32, 8);
  gpt.strategy.storage = Storage::bf16;
  gpt.strategy.keep = kStateHomes.back();
  gpt.strategy.gradients = Storage::bf16;
  gpt.strategy.layer_gradients = LayerGradients::in_inputs;
  gpt.strategy.queries = Queries::again;
  gpt.name = "gpt_4";
  all.push_back(gpt);
  Case replicas = make_case(wider(tiny_llama()), 4, 21, 8);
  replicas.strategy.mesh.replicas = 2;
  replicas.strategy.storage = Storage::bf16;
  replicas.strategy.copies.overlap_all_to_all = true;
  replicas.name = "replicas_4";
  all.push_back(replicas);
  Case shared = make_case(wider(tiny_gpt()), 4, 21, 8);
  shared.problem.model.kv_heads = 1;
  shared.strategy.mesh.tensor = 2;
  shared.strategy.storage = Storage::bf16;
  shared.name = "shared_products_4";
  all.push_back(shared);
  Case experts = make_case(wider(tiny_gpt_oss(4, 2)), 2, 24, 8);
  experts.strategy.storage = Storage::bf16;
  experts.strategy.tiles.ffn_rows = 3;
  experts.name = "experts_2";
  all.push_back(experts);
  Case halos = make_case(wider(tiny_llama()), 4, 41, 24);
  halos.problem.model.kinds.front().window = 4;
  halos.strategy.mesh.ring = 4;
  halos.strategy.keys = Keys::ring;
  halos.strategy.layout = Layout::zigzag;
  halos.strategy.storage = Storage::bf16;
  halos.name = "halos_4";
  all.push_back(halos);
  Case nodes = make_case(wider(tiny_llama()), 4, 21, 8);
  nodes.problem.cluster.nodes = nodes.problem.cluster.devices_per_node = 2;
  nodes.strategy.zero_groups = ZeroGroups::hybrid;
  nodes.strategy.storage = Storage::bf16;
  nodes.name = "hybrid_nodes_4";
  all.push_back(nodes);
  return all;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> weights, moments;
  bool operator==(const Outcome&) const = default;
};

Outcome train(const Case& one, const RankOptions& options) {
  Rig rig(one, options);
  rig.trainer.set_parameters(random_parameters(7));
  Outcome found;
  const std::vector<Sample> samples =
      random_samples(one.problem, rig.trainer.samples_per_step(), 1);
  found.losses.push_back(rig.trainer.step(samples, 1e-2).loss);
  found.losses.push_back(rig.trainer.evaluate(samples));
  found.weights = all_of(rig.trainer, "weight");
  found.moments = all_of(rig.trainer, "moment2");
  return found;
}

RankOptions on_gpus(bool one_each) {
  RankOptions options;
  options.make_backend = [one_each](Communicator& communicator) {
    CudaOptions own;
    own.device = one_each ? static_cast<std::int32_t>(communicator.rank()) : 0;
    return std::make_unique<CudaBackend>(communicator, own);
  };
  return options;
}

class NcclSchedule : public testing::TestWithParam<Case> {};

TEST_P(NcclSchedule, GivesTheBitsOfThreads) {
  const Case& one = GetParam();
  const auto ranks = static_cast<int>(one.problem.ranks());
  fake::set({.seed = 3});
  const Outcome shared = train(one, on_gpus(false));
  set_machine(ranks, {}, 99);
  RankOptions options = on_gpus(true);
  options.connect = connect_threads(ranks);
  EXPECT_TRUE(train(one, options) == shared);
  EXPECT_EQ(fmt::format("{}", fmt::join(fake::broken_rules(), "; ")), "");
  EXPECT_EQ(fake::open_communicators(), 0);
  EXPECT_EQ(fake::allocated(), 0);
}

// What each rank sends in a step on two hosts, as it counts and by the schedule. NCCL gathers, and
// adds for the replicas.
TEST_P(NcclSchedule, CountsWhatTheScheduleSends) {
  const Case& one = GetParam();
  const auto ranks = static_cast<int>(one.problem.ranks());
  const int node = ranks / 2;
  const auto on_rank = [&](std::int64_t rank) {
    NcclOptions options = on_fake(rank);
    options.native_sums = one.strategy.mesh.replicas > 1;
    return options;
  };
  set_machine(ranks);
  RankOptions options = on_gpus(true);
  options.connect = connect_threads(ranks, on_rank, node);
  Rig rig(one, options);
  rig.trainer.set_parameters(random_parameters(7));
  rig.trainer.step(random_samples(one.problem, rig.trainer.samples_per_step(), 1), 1e-2);
  const Schedule& schedule = rig.trainer.schedule();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Traffic counted = rig.trainer.ranks().executor(rank).sent();
    const Traffic expected = traffic(schedule, schedule.train, rank, node);
    EXPECT_EQ(counted.node, expected.node) << "rank " << rank;
    EXPECT_EQ(counted.network, expected.network) << "rank " << rank;
    EXPECT_GT(counted.network, 0);
    EXPECT_EQ(counted.node > 0, node > 1);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Cases, NcclSchedule, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace fpdt
