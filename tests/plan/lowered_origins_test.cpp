// S7xx finds what a wrong lowering would do to the rows of a schedule that passes all other checks.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lower.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/verify.h"

#include "problems.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

// Three chunks on two ranks that divide heads, or that gather keys.
class LoweredOrigins : public testing::Test {
 protected:
  static Schedule lowered(Keys keys = Keys::resident, int ranks = 2, Recompute recompute = {}) {
    Strategy strategy = test::tiny_strategy(ranks == 3 ? 21 : 20);
    strategy.keys = keys;
    strategy.mesh.ring = keys == Keys::resident ? 1 : (keys == Keys::ring ? ranks : 2);
    strategy.layer_classes.front().recompute = recompute;
    return lower(test::tiny_problem(test::tiny_llama(), ranks, 60), strategy).schedule.schedule();
  }

  // An op of a block: the first that has this name.
  template <class Body>
  static Body& body(Schedule& schedule, std::string_view block, std::string_view name) {
    for (Block& one : schedule.blocks) {
      if (one.name != block) continue;
      for (Op& op : one.ops) {
        if (op.name == name) return std::get<Body>(op.body);
      }
    }
    throw std::out_of_range(std::string(name));
  }

  static Codes codes(Schedule schedule) {
    depend(schedule);
    Codes found;
    for (const Diagnostic& one : verify(schedule)) found.insert(one.code);
    return found;
  }
};

// With keep_all, backward reads the keys that forward stored.
TEST_F(LoweredOrigins, ACopyOfAnotherChunkIsFound) {
  for (const Recompute recompute :
       {Recompute::from_input, Recompute::keep_attention, Recompute::keep_all}) {
    Schedule schedule = lowered(Keys::resident, 2, recompute);
    int mutants = 0;
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        auto* copy = std::get_if<Copy>(&op.body);
        if (copy == nullptr || op.name.rfind("fetch_kv.1", 0) != 0) continue;
        const Copy right = *copy;
        --copy->source.version.offset;
        EXPECT_EQ(codes(schedule), Codes{"S701"}) << block.name << "." << op.name;
        *copy = right;
        ++mutants;
      }
    }
    EXPECT_GE(mutants, 2) << "forward and backward";
  }
}

TEST_F(LoweredOrigins, ATileOfAnotherChunkIsFound) {
  Schedule schedule = lowered();
  auto& one = body<AttentionForward>(schedule, "forward", "attn.2.0");
  auto& other = body<AttentionForward>(schedule, "forward", "attn.2.1");
  std::swap(one.k_first, other.k_first);
  EXPECT_EQ(codes(schedule), Codes{"S701"});
}

TEST_F(LoweredOrigins, RowsAreDealtToTheRanksOfTheirHeads) {
  Schedule schedule = lowered(Keys::gathered, 4);
  EXPECT_EQ(codes(schedule), Codes{});
  ASSERT_EQ(schedule.groups.size(), 3U);
  const auto group = [&](std::string_view name) {
    return std::find_if(schedule.groups.begin(), schedule.groups.end(),
                        [&](const Group& one) { return one.name == name; });
  };
  std::swap(group("sp")->stride, group("ring")->stride);
  std::swap(group("sp")->first, group("ring")->first);
  EXPECT_EQ(codes(schedule).count("S701"), 1U);
}

// Two ranks share products, and two others exchange heads with them.
Schedule shared_products(std::int64_t kv_heads = 2) {
  Strategy strategy = test::tiny_strategy(20);
  strategy.mesh.tensor = 2;
  ModelSpec model = test::tiny_llama();
  model.kv_heads = kv_heads;
  return lower(test::tiny_problem(model, 4, 60), strategy).schedule.schedule();
}

// A sum that is left out: what follows reads this rank's own terms, of the rows of the first rank.
TEST_F(LoweredOrigins, TermsThatAreNotAddedUpAreFound) {
  EXPECT_EQ(codes(shared_products()), Codes{});
  Schedule schedule = shared_products();
  auto& sum = body<Add>(schedule, "forward", "add_out.0");
  sum.source = body<Matmul>(schedule, "forward", "out.0").out.operand;
  sum.source.rows = sum.rows;
  for (Buffer& one : schedule.buffers) one.offset = kUnplaced;
  EXPECT_EQ(codes(schedule), (Codes{"S702", "S703"}));
}

TEST_F(LoweredOrigins, TermsOfAnotherGroupAreFound) {
  for (const std::int64_t kv_heads : {2, 1}) {
    Schedule schedule = shared_products(kv_heads);
    auto& sum = body<ReduceScatter>(schedule, "backward", "sum_dn2.1");
    ASSERT_EQ(sum.group, "tp");
    sum.group = "sp";
    const Codes found = codes(schedule);
    EXPECT_EQ(found.count("S702") + found.count("S703"), 1U);
  }
}

TEST_F(LoweredOrigins, RowsOfAnotherGroupAreFound) {
  Schedule schedule = shared_products();
  body<AllGather>(schedule, "forward", "gather_n1.1").group = "sp";
  EXPECT_EQ(codes(schedule), Codes{"S701"});
}

// Ranks have the other part of the columns than those that they compute with.
TEST_F(LoweredOrigins, OtherPartsOfTensorsAreFound) {
  for (const char* name : {"qkv.weight", "up.weight", "down.weight", "out.weight"}) {
    Schedule schedule = shared_products();
    for (State& state : schedule.states) {
      if (state.tensor.ends_with(name)) state.cut.part = {1, {-1, 0, 1, 2}};
    }
    const Codes found = codes(schedule);
    EXPECT_TRUE(found.count("S701") + found.count("S702") > 0) << name;
  }
}

TEST_F(LoweredOrigins, PartsOfTensorsAreGatheredFromTheirRanks) {
  Schedule schedule = shared_products();
  const auto group = [&](std::string_view name) {
    return std::find_if(schedule.groups.begin(), schedule.groups.end(),
                        [&](const Group& one) { return one.name == name; });
  };
  group("cut")->stride = 1;
  group("cut")->first = group("tp")->first;
  EXPECT_EQ(codes(schedule).count("S702"), 1U);
}

// Sums that leave out some ranks, or have the pieces of others.
TEST_F(LoweredOrigins, SumsWithoutSomeRanksAreFound) {
  Schedule schedule = shared_products();
  body<AllReduce>(schedule, "grad_norm", "reduce_norm").group = "sp";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
  schedule = shared_products();
  body<AllReduce>(schedule, "finish", "reduce_loss").group = "sp";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
  schedule = shared_products();
  for (State& state : schedule.states) {
    if (state.kind == "gradient" && state.cut.sections.empty()) state.shard = {3, {-1, 0, 1, 4}};
  }
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

// Two nodes of two ranks, each with all parameters.
Schedule nodes(Storage storage = Storage::f32) {
  Problem problem = test::tiny_problem(test::tiny_llama(), 4, 60);
  problem.cluster.nodes = problem.cluster.devices_per_node = 2;
  Strategy strategy = test::tiny_strategy(20);
  strategy.storage = storage;
  strategy.zero_groups = ZeroGroups::hybrid;
  return lower(problem, strategy).schedule.schedule();
}

// A sum over nodes that goes over a node again, and so has some terms twice and others not at all.
TEST_F(LoweredOrigins, SumsOverTheWrongNodesAreFound) {
  EXPECT_EQ(codes(nodes()), Codes{});
  Schedule schedule = nodes();
  body<ReduceScatter>(schedule, "embed_backward", "reduce_embed_node.nodes").group = "node";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
  schedule = nodes();
  body<AllReduce>(schedule, "grad_norm", "reduce_norm_node.nodes").group = "node";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

// A scalar on its way passes a buffer that other totals pass as well.
TEST_F(LoweredOrigins, EveryWayOfATotalIsFollowed) {
  Schedule schedule = nodes();
  body<AllReduce>(schedule, "finish", "reduce_loss_node.node").group = "nodes";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

TEST_F(LoweredOrigins, ATotalThatIsAddedToIsFound) {
  Schedule schedule = shared_products();
  Block& block = *std::find_if(schedule.blocks.begin(), schedule.blocks.end(),
                               [](const Block& one) { return one.name == "grad_norm"; });
  block.ops.push_back(block.ops.back());
  block.ops.back().name = "again";
  auto& again = std::get<AllReduce>(block.ops.back().body);
  again.receive[0].accumulate = true;
  again.workspace = {};
  for (Block& one : schedule.blocks) {
    for (Op& op : one.ops) op.after.clear();
  }
  for (Buffer& one : schedule.buffers) one.offset = kUnplaced;
  depend(schedule);
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

// States, one of them in one layer only, that are not those of the pieces of gradients.
TEST_F(LoweredOrigins, StatesOfOtherPiecesAreFound) {
  for (const char* kind : {"parameter", "master", "moment1", "moment2"}) {
    for (const char* tensor : {"layers.1.up.weight", ".up.weight", "embed.weight"}) {
      Schedule schedule = nodes(Storage::bf16);
      for (State& state : schedule.states) {
        if (state.kind != kind || !state.tensor.ends_with(tensor)) continue;
        const std::int64_t last = state.shards - 1;
        state.shard = {last, {-1, 0, 1, state.shards}};
      }
      EXPECT_EQ(codes(schedule), Codes{"S705"}) << kind << " " << tensor;
    }
  }
}

// Four ranks whose layers have everything on the host.
Schedule streamed(std::int64_t nodes, Storage gradients) {
  Strategy strategy = test::tiny_strategy(20);
  strategy.keep = kStateHomes.back();
  strategy.storage = Storage::bf16;
  strategy.gradients = gradients;
  strategy.zero_groups = ZeroGroups::hierarchical;
  Problem problem = test::tiny_problem(test::tiny_llama(), 4, 60);
  problem.cluster.nodes = nodes;
  problem.cluster.devices_per_node = 4 / nodes;
  return lower(problem, strategy).schedule.schedule();
}

TEST_F(LoweredOrigins, StreamsOfOtherPiecesAreFound) {
  for (const Storage gradients : {Storage::f32, Storage::bf16}) {
    EXPECT_EQ(codes(streamed(1, gradients)), Codes{});
    for (const char* kind : {"parameter", "gradient"}) {
      Schedule schedule = streamed(1, gradients);
      for (State& state : schedule.states) {
        if (state.kind == kind && state.tensor.ends_with(".up.weight")) {
          state.shard = {3, {-1, 0, 1, 4}};
        }
      }
      EXPECT_EQ(codes(schedule), Codes{"S705"}) << kind;
    }
  }
}

// A sum that goes over a node twice before it goes to the host.
TEST_F(LoweredOrigins, StreamedSumsOverTheWrongNodesAreFound) {
  for (const Storage gradients : {Storage::f32, Storage::bf16}) {
    Schedule schedule = streamed(2, gradients);
    EXPECT_EQ(codes(schedule), Codes{});
    body<ReduceScatter>(schedule, "backward", "reduce_gradients_node.nodes").group = "node";
    EXPECT_EQ(codes(schedule), Codes{"S705"});
  }
}

// Whole gradients that wait in bf16 for the next micro-batch, and for the sum over the ranks.
TEST_F(LoweredOrigins, SumsOfWhatWasPutAsideAreKnown) {
  Strategy strategy = test::tiny_strategy(20);
  strategy.storage = strategy.gradients = Storage::bf16;
  strategy.zero = 1;
  strategy.micro_batches = 2;
  Problem problem = test::tiny_problem(test::tiny_llama(), 4, 60);
  problem.cluster.nodes = problem.cluster.devices_per_node = 2;
  strategy.zero_groups = ZeroGroups::hierarchical;
  Schedule schedule = lower(problem, strategy).schedule.schedule();
  EXPECT_EQ(codes(schedule), Codes{});
  body<ReduceScatter>(schedule, "grad_norm_layer", "reduce_gradients_node.nodes").group = "node";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

// Updated pieces come from the ranks of the node, which have other blocks.
TEST_F(LoweredOrigins, BlocksOfOtherRanksAreFound) {
  Schedule schedule = nodes();
  body<AllGather>(schedule, "optimizer", "gather_parameters_node.nodes").group = "node";
  EXPECT_EQ(codes(schedule), Codes{"S705"});
  schedule = nodes();
  for (State& state : schedule.states) {
    if (state.kind == "parameter") state.shard = {1, {-1, 0, 1, 2}};
  }
  EXPECT_EQ(codes(schedule), Codes{"S705"});
}

// Rows that every rank adds to its terms, and so enter the sum twice.
TEST_F(LoweredOrigins, WhatEveryRankAddsIsFound) {
  Schedule schedule = shared_products();
  auto& terms = body<Matmul>(schedule, "backward", "dn2.0.0");
  terms.addend = body<Matmul>(schedule, "backward", "dw_down.0.0").a;
  EXPECT_EQ(codes(schedule), Codes{"S702"});
}

// After the all-to-all, all ranks hold the same tokens.
TEST_F(LoweredOrigins, HeadsOfAnotherRankAreFound) {
  Schedule schedule = lowered();
  auto& tile = body<AttentionForward>(schedule, "forward", "attn.0.0");
  Buffer spare = schedule.buffers[index(tile.q.buffer)];
  spare.name = "spare";
  schedule.buffers.push_back(spare);
  for (Buffer& one : schedule.buffers) one.offset = kUnplaced;
  Operand other = tile.q;
  other.buffer = static_cast<BufferIndex>(schedule.buffers.size()) - 1;
  other.version = Version::plus(0);
  const Op swap{"swap", {LaneKind::comm, 0}, Exchange{"sp", {tile.q}, {{other, false}}}, {}};
  tile.q = other;
  for (Block& block : schedule.blocks) {
    if (block.name != "forward") continue;
    block.advance.emplace_back(other.buffer, 1);
    block.ops.insert(std::find_if(block.ops.begin(), block.ops.end(),
                                  [](const Op& op) { return op.name == "attn.0.0"; }),
                     swap);
  }
  EXPECT_EQ(codes(schedule), Codes{"S701"});
}

TEST_F(LoweredOrigins, ATileThatIsNotAddedIsFound) {
  for (const Keys keys : {Keys::resident, Keys::gathered}) {
    Schedule schedule = lowered(keys);
    auto& tile = body<AttentionBackward>(schedule, "backward", "dattn.2.1");
    ASSERT_TRUE(tile.dq.accumulate);
    Buffer spare = schedule.buffers[index(tile.dq.operand.buffer)];
    spare.name = "spare";
    schedule.buffers.push_back(spare);
    const auto number = static_cast<BufferIndex>(schedule.buffers.size()) - 1;
    tile.dq = {{number, Version::plus(0), 0, tile.dq.operand.rows}, false};
    for (Block& block : schedule.blocks) {
      if (block.name == "backward") block.advance.emplace_back(number, 1);
    }
    for (Buffer& one : schedule.buffers) one.offset = kUnplaced;
    EXPECT_EQ(codes(schedule), Codes{"S703"});
  }
}

// A joint norm of columns that do not lie in the row, or of wider rows, or whose gradient counts
// rows of another chunk.
TEST_F(LoweredOrigins, JointNormsAreOfTheirRows) {
  ModelSpec model = test::tiny_llama();
  model.qk_norm = model.joint_qk_norm = true;
  const Schedule right =
      lower(test::tiny_problem(model, 2, 60), test::tiny_strategy(20)).schedule.schedule();
  EXPECT_EQ(codes(right), Codes{});
  for (const std::int64_t first : {std::int64_t{-1}, model.qkv_width()}) {
    Schedule wrong = right;
    body<NormColumns>(wrong, "forward", "k_norm.1").column_first = first;
    EXPECT_EQ(codes(wrong), Codes{"S205"}) << first;
    wrong = right;
    body<NormColumnsBackward>(wrong, "backward", "dq_norm.1").column_first = first;
    EXPECT_EQ(codes(wrong), Codes{"S205"}) << first;
  }
  Schedule wrong = right;
  body<NormColumns>(wrong, "forward", "k_norm.1").values.accumulate = false;
  EXPECT_TRUE(codes(wrong).contains("S205"));
  wrong = right;
  body<NormColumnsBackward>(wrong, "backward", "dk_norm.1").local_first = 0;
  EXPECT_EQ(codes(wrong), (Codes{"S504", "S505"}));
  wrong = right;
  body<NormColumns>(wrong, "forward", "q_norm.1").stride += 1;
  EXPECT_EQ(codes(wrong), Codes{"S202"});
}

// A sink that is merged twice, or not at all, or of the heads of another rank.
TEST_F(LoweredOrigins, SinksAreMergedOnce) {
  const auto with_sinks = [](std::int64_t tensor) {
    ModelSpec model = test::tiny_llama();
    model.sinks = true;
    Strategy strategy = test::tiny_strategy(20);
    strategy.mesh.tensor = tensor;
    return lower(test::tiny_problem(model, 2, 60), strategy).schedule.schedule();
  };
  for (const std::int64_t tensor : {1, 2}) {
    const Schedule right = with_sinks(tensor);
    EXPECT_EQ(codes(right), Codes{});
    for (const bool twice : {false, true}) {
      Schedule wrong = right;
      for (Block& block : wrong.blocks) {
        if (block.name != "forward") continue;
        const auto sink = std::find_if(block.ops.begin(), block.ops.end(),
                                       [](const Op& op) { return op.name == "sink.1"; });
        ASSERT_NE(sink, block.ops.end());
        Op again = *sink;
        again.name = "again";
        twice ? block.ops.insert(sink, again) : block.ops.erase(sink);
      }
      EXPECT_EQ(codes(wrong), Codes{"S508"}) << tensor;
    }
    Schedule wrong = right;
    body<AttentionSink>(wrong, "forward", "sink.1").head_first = {};
    EXPECT_EQ(codes(wrong), Codes{"S508"}) << tensor;
    wrong = right;
    body<AttentionSinkGradient>(wrong, "backward", "dsinks.1").head_first = {};
    EXPECT_EQ(codes(wrong), Codes{"S701"}) << tensor;
    wrong = right;
    body<AttentionSinkGradient>(wrong, "backward", "dsinks.1").local_first = 0;
    EXPECT_EQ(codes(wrong), (Codes{"S504", "S505"})) << tensor;
    if (tensor == 1) continue;
    wrong = right;
    for (State& state : wrong.states) {  // the scores of the other rank's heads
      if (state.tensor.ends_with("sinks.weight")) state.cut.part = {1, {-1, 0, 1, 2}};
    }
    EXPECT_EQ(codes(wrong).count("S702"), 1U);
  }
}

// Keys in another order, and gradients that go another way or are not added.
TEST_F(LoweredOrigins, WhatTakesAnotherWayAroundARingIsFound) {
  const auto find = [](auto break_it, std::string_view prefix, std::size_t least) {
    Schedule schedule = lowered(Keys::ring, 3);
    std::size_t mutants = 0;
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        if (op.name.rfind(prefix, 0) != 0) continue;
        const Body right = op.body;
        break_it(op.body);
        EXPECT_FALSE(codes(schedule).empty()) << block.name << "." << op.name;
        op.body = right;
        ++mutants;
      }
    }
    EXPECT_GE(mutants, least) << prefix;
  };
  const auto turn = [](Body& body) {
    auto& exchange = std::get<Exchange>(body);
    exchange.hop = 3 - exchange.hop;
  };
  find(turn, "pass_kv", 12);  // two hops of three chunks, forward and repeated
  find(turn, "pass_back_kv", 6);
  find(turn, "pass_dkv", 6);
  find([](Body& body) { std::get<Copy>(body).target.accumulate = false; }, "add_dkv", 6);
}

// The last three keys of a run of six go to the neighbour with the next run, on either side.
TEST_F(LoweredOrigins, HalosOfOtherRowsOrRanksAreFound) {
  ModelSpec model = test::tiny_llama();
  model.kinds.front().window = 4;
  Strategy strategy = test::tiny_strategy(24);
  strategy.mesh.ring = 4;
  strategy.keys = Keys::ring;
  strategy.layout = Layout::zigzag;
  Schedule schedule = lower(test::tiny_problem(model, 4, 48), strategy).schedule.schedule();
  EXPECT_EQ(codes(schedule), Codes{});
  std::int64_t halos = 0;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      auto* exchange = std::get_if<Exchange>(&op.body);
      if (exchange == nullptr) continue;
      const Exchange right = *exchange;
      exchange->hop = 4 - exchange->hop;
      EXPECT_FALSE(codes(schedule).empty()) << block.name << "." << op.name;
      *exchange = right;
      Operand& sent = exchange->send.front();
      if (sent.row_first == 0) continue;
      ++halos;
      sent.row_first -= 1;
      EXPECT_FALSE(codes(schedule).empty()) << block.name << "." << op.name;
      *exchange = right;
    }
  }
  EXPECT_EQ(halos, 2 * 3) << "two chunks: forward, and in backward again and for itself";
}

TEST_F(LoweredOrigins, LabelsAreThoseOfTheLogits) {
  Schedule schedule = lowered();
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (auto* loss = std::get_if<LossGradient>(&op.body)) {
        loss->labels.row_first = std::max<std::int64_t>(0, loss->labels.row_first - 1);
      }
    }
  }
  EXPECT_EQ(codes(schedule), Codes{"S702"});
}

}  // namespace
}  // namespace fpdt
