// Orders drawn by a seed give the same bits as threads, so the edges of a lowered schedule suffice.
#include <cstring>

#include <gtest/gtest.h>

#include "fpdt/check/check.h"
#include "fpdt/cpu/kernels.h"
#include "fpdt/runtime/interleave.h"

#include "cases.h"

namespace fpdt {
namespace {

// Copies every state and input of the ranks into the interleaver.
void copy_state(const Ranks& ranks, const Interleaver& to) {
  const Schedule& schedule = ranks.schedule();
  for (const std::int64_t rank : ranks.present()) {
    for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      if (buffer.role != Role::state && buffer.role != Role::input) continue;
      for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
        const auto index = static_cast<BufferIndex>(b);
        const std::span<std::byte> source = ranks.executor(rank).slot(index, slot);
        std::memcpy(to.slot(rank, index, slot).data(), source.data(), source.size());
      }
    }
  }
}

// Counts the states and outputs that differ.
int differences(const Ranks& ranks, const Interleaver& other) {
  const Schedule& schedule = ranks.schedule();
  int count = 0;
  for (const std::int64_t rank : ranks.present()) {
    for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      if (buffer.role != Role::state && buffer.role != Role::output) continue;
      for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
        const auto index = static_cast<BufferIndex>(b);
        const std::span<std::byte> mine = ranks.executor(rank).slot(index, slot);
        if (std::memcmp(mine.data(), other.slot(rank, index, slot).data(), mine.size()) != 0)
          ++count;
      }
    }
  }
  return count;
}

class Interleaving : public testing::TestWithParam<Case> {};

TEST_P(Interleaving, GivesTheSameBits) {
  const Case& one = GetParam();
  Rig rig(one);
  const auto samples = random_samples(one.problem, rig.trainer.samples_per_step(), 1);
  Pool pool(1);
  Kernels kernels(pool);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Interleaver other(rig.lowered.schedule,
                      [&](std::int64_t rank, const Op& op, std::span<const View> views) {
                        kernels.run(op.body, views, rank);
                      });
    // The first step only feeds the inputs.
    rig.trainer.set_parameters(random_parameters(7));
    rig.trainer.step(samples, 1e-2);
    rig.trainer.set_parameters(random_parameters(7));
    copy_state(rig.trainer.ranks(), other);
    other.run(rig.trainer.schedule().train, seed);
    rig.trainer.step(samples, 1e-2);
    EXPECT_EQ(differences(rig.trainer.ranks(), other), 0) << "seed " << seed;
  }
}

std::vector<Case> cases() {
  Case plain = make_case(tiny_llama(), 2, 24, 8);
  plain.name = "kv_outer";
  Case queries = make_case(tiny_gpt(), 4, 20, 8);
  queries.name = "q_outer_offload";
  queries.strategy.tiles.backward_order = BackwardOrder::q_outer;
  queries.strategy.copies.prefetch_depth = 3;
  queries.strategy.offload_states(true);
  queries.strategy.micro_batches = 2;
  Case deep = make_case(tiny_llama(), 1, 32, 4);
  deep.name = "checkpoint_every_2";
  deep.strategy.segments = {2};
  deep.strategy.tiles.serpentine = true;
  Case whole = make_case(tiny_gpt(), 2, 24, 8);
  whole.name = "whole_extent";
  whole.strategy.extent = Extent::whole;
  Case whole_queries = make_case(tiny_llama(), 2, 20, 8);
  whole_queries.name = "whole_extent_q_outer";
  whole_queries.strategy.extent = Extent::whole;
  whole_queries.strategy.tiles.backward_order = BackwardOrder::q_outer;
  Case gathered = make_case(tiny_llama(), 4, 24, 8);
  gathered.name = "gathered_keys";
  gathered.strategy.keys = Keys::gathered;
  gathered.strategy.mesh.ring = 2;
  gathered.strategy.layout = Layout::zigzag;
  Case gathered_queries = make_case(tiny_gpt(), 3, 24, 9);
  gathered_queries.name = "gathered_keys_q_outer";
  gathered_queries.strategy.keys = Keys::gathered;
  gathered_queries.strategy.mesh.ring = 3;
  gathered_queries.strategy.tiles.backward_order = BackwardOrder::q_outer;
  Case ring = make_case(tiny_llama(), 3, 24, 6);
  ring.name = "ring_of_keys";
  ring.strategy.keys = Keys::ring;
  ring.strategy.mesh.ring = 3;
  ring.strategy.layout = Layout::zigzag;
  Case ring_queries = make_case(tiny_gpt(), 4, 24, 8);
  ring_queries.name = "ring_of_keys_q_outer";
  ring_queries.strategy.keys = Keys::ring;
  ring_queries.strategy.mesh.ring = 2;
  ring_queries.strategy.tiles.backward_order = BackwardOrder::q_outer;
  ring_queries.strategy.storage = Storage::bf16;
  ring_queries.strategy.key_gradients = Storage::bf16;
  Case stage = make_case(tiny_gpt(), 3, 21, 9);
  stage.name = "zero_1";
  stage.strategy = gathered_queries.strategy;
  stage.strategy.zero = 1;
  stage.strategy.micro_batches = 2;
  Case tensor = make_case(tiny_gpt(), 4, 24, 8);
  tensor.name = "shared_products";
  tensor.strategy.mesh.tensor = 2;
  tensor.strategy.storage = Storage::bf16;
  Case nodes = make_case(tiny_llama(), 4, 24, 8);
  nodes.name = "hybrid_nodes";
  nodes.problem.cluster.nodes = nodes.problem.cluster.devices_per_node = 2;
  nodes.strategy.zero_groups = ZeroGroups::hybrid;
  nodes.strategy.micro_batches = 2;
  return {plain,    queries,          deep, whole,        whole_queries, tensor,
          gathered, gathered_queries, ring, ring_queries, stage,         nodes};
}

INSTANTIATE_TEST_SUITE_P(Cases, Interleaving, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace fpdt
