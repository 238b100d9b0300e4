// What the verifier finds in damaged schedules of models with experts.
#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/plan/lower.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/roles.h"
#include "fpdt/schedule/verify.h"

#include "accounts.h"
#include "problems.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

Codes codes_of(const Schedule& schedule) {
  Codes codes;
  for (const Diagnostic& finding : verify(schedule)) codes.insert(finding.code);
  return codes;
}

std::vector<Op>& ops_of(Schedule& schedule, std::string_view block) {
  return std::find_if(schedule.blocks.begin(), schedule.blocks.end(),
                      [&](const Block& one) { return one.name == block; })
      ->ops;
}

class LoweredExperts : public testing::Test {
 protected:
  LoweredExperts() {
    ModelSpec model = test::tiny_llama();
    model.experts = 4;
    model.active_experts = 2;
    model.balance_loss = 0.1;
    Strategy strategy = test::tiny_strategy(8);
    strategy.tiles.ffn_rows = 2;
    whole = lower(test::tiny_problem(model, 2, 16), strategy).schedule.schedule();
  }

  // The codes that a change of the first op of a kind in `backward` brings.
  template <class Body>
  Codes after(const std::function<void(Body&)>& change) {
    Schedule damaged = whole;
    for (Op& op : ops_of(damaged, "backward")) {
      auto* body = std::get_if<Body>(&op.body);
      if (body == nullptr) continue;
      change(*body);
      break;
    }
    for (Block& block : damaged.blocks) {
      for (Op& op : block.ops) op.after.clear();
    }
    depend(damaged);
    return codes_of(damaged);
  }

  Schedule whole;
};

TEST_F(LoweredExperts, AreSafe) { EXPECT_EQ(codes_of(whole), Codes{}); }

TEST_F(LoweredExperts, RoutesAreThoseOfAsManyRowsAndExperts) {
  EXPECT_TRUE(after<Dispatch>([](Dispatch& op) { op.experts = 3; }).count("S610"));
  EXPECT_TRUE(after<Combine>([](Combine& op) { op.active = 1; }).count("S610"));
  EXPECT_TRUE(after<Route>([](Route& op) { op.rows = 1; }).count("S610"));
  // Those of another tile.
  EXPECT_TRUE(
      after<GroupedMatmul>([](GroupedMatmul& op) { --op.routes.version.offset; }).count("S610"));
  EXPECT_TRUE(
      after<GroupedGradient>([](GroupedGradient& op) { op.routes.rows -= 1; }).count("S610"));
}

TEST_F(LoweredExperts, RoutesAreMadeBeforeTheyAreRead) {
  Schedule damaged = whole;
  std::vector<Op>& ops = ops_of(damaged, "forward");
  const auto route = std::find_if(
      ops.begin(), ops.end(), [](const Op& op) { return std::holds_alternative<Route>(op.body); });
  std::rotate(route, route + 1, route + 2);
  EXPECT_TRUE(codes_of(damaged).count("S610"));
}

TEST_F(LoweredExperts, OnlyRoutesAreMadeByOps) {
  Schedule damaged = whole;
  Operand routes;
  for (Op& op : ops_of(damaged, "forward")) {
    if (const auto* route = std::get_if<Route>(&op.body)) routes = route->routes.operand;
  }
  EXPECT_EQ(purposes_of(damaged)[static_cast<std::size_t>(routes.buffer)], "routes");
  Fill fill;
  fill.target = {routes, false};
  for (Op& op : ops_of(damaged, "forward")) {
    if (std::holds_alternative<Route>(op.body)) {
      op.body = fill;
      break;
    }
  }
  const Codes codes = codes_of(damaged);
  EXPECT_TRUE(codes.count("S602") && codes.count("S610"));
  damaged = whole;
  for (Op& op : ops_of(damaged, "head")) {
    if (auto* loss = std::get_if<LossStatistics>(&op.body)) loss->labels = routes;
  }
  EXPECT_TRUE(codes_of(damaged).count("S602"));
  damaged = whole;
  damaged.feeds.front().holds = Holds::routes;
  EXPECT_TRUE(codes_of(damaged).count("S606"));
}

TEST_F(LoweredExperts, SumsReceiveEachRowOnce) {
  EXPECT_TRUE(
      after<GroupedGradient>([](GroupedGradient& op) { op.local_first = -1; }).count("S605"));
  EXPECT_TRUE(
      after<GroupedGradient>([](GroupedGradient& op) { op.local_first += 1; }).count("S504"));
}

TEST_F(LoweredExperts, EachRowIsCountedOnce) {
  const auto counts = [](const Op& op) { return std::holds_alternative<ExpertLoads>(op.body); };
  const auto damaged = [&](const std::function<void(Block&)>& change) {
    Schedule schedule = whole;
    for (Block& block : schedule.blocks) {
      if (std::any_of(block.ops.begin(), block.ops.end(), counts)) change(block);
      for (Op& op : block.ops) op.after.clear();
    }
    depend(schedule);
    return codes_of(schedule);
  };
  EXPECT_EQ(damaged([](Block&) {}), Codes{});
  // The last tile of a layer, and all of them.
  EXPECT_TRUE(damaged([&](Block& block) {
                const auto last = std::find_if(block.ops.rbegin(), block.ops.rend(), counts);
                block.ops.erase(std::next(last).base());
              }).count("S509"));
  EXPECT_TRUE(damaged([&](Block& block) { std::erase_if(block.ops, counts); }).count("S509"));
  EXPECT_EQ(damaged([&](Block& block) {
              const auto first = std::find_if(block.ops.begin(), block.ops.end(), counts);
              Op again = *first;
              again.name = "again";
              block.ops.insert(first, again);
            }),
            Codes{"S509"});
  // A layer that is visited twice.
  Schedule twice = whole;
  const auto call = std::find_if(twice.train.begin(), twice.train.end(), [&](const Call& one) {
    return twice.blocks[static_cast<std::size_t>(one.block)].name == "forward";
  });
  twice.train.insert(call, *call);
  EXPECT_TRUE(codes_of(twice).count("S509"));
}

// Under every stage of ZeRO, over nodes as well: an update may gather all slices of a tensor. One,
// two or four tiles of rows gather them, and layers that run forward again.
TEST_F(LoweredExperts, SlicesAreSharedUnderEveryStage) {
  ModelSpec model = test::tiny_llama();
  model.experts = 8;
  model.active_experts = 2;
  Problem problem = test::tiny_problem(model, 4, 16);
  problem.cluster.nodes = problem.cluster.devices_per_node = 2;
  Strategy strategy = test::tiny_strategy(16);
  strategy.tiles.expert_slices = 4;
  std::int64_t sound = 0;
  for (const std::int64_t replicas : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const ZeroGroups groups :
           {ZeroGroups::flat, ZeroGroups::hybrid, ZeroGroups::hierarchical}) {
        for (const std::int64_t segment : {1, 2}) {
          strategy.mesh.replicas = replicas;
          strategy.zero = zero;
          strategy.zero_groups = groups;
          strategy.segments = {segment};
          strategy.micro_batches = 3 - segment;
          strategy.tiles.ffn_rows = 2;
          strategy.tiles.expert_loop = sound % 2 == 0 ? ExpertLoop::tiles : ExpertLoop::slices;
          if (!check(problem, strategy).empty()) continue;
          ++sound;
          expect_accounts(problem, strategy, true,
                          fmt::format("{} replicas, stage {}, {}, segments of {}", replicas, zero,
                                      word(groups), segment));
        }
      }
    }
  }
  EXPECT_GT(sound, 12);
}

// What is made in slices: with another slice than its pairs, one that is left out, two that changed
// places, and one that begins anew.
TEST_F(LoweredExperts, SlicesAreMadeOnceInOrder) {
  ModelSpec model = test::tiny_llama();
  model.experts = 4;
  model.active_experts = 2;
  Strategy strategy = test::tiny_strategy(8);
  strategy.tiles.ffn_rows = 2;
  strategy.tiles.expert_slices = 4;
  whole = lower(test::tiny_problem(model, 2, 16), strategy).schedule.schedule();
  EXPECT_EQ(codes_of(whole), Codes{});
  // The codes that a change of the second slice of an op brings.
  const auto damaged = [&](const char* block, auto of, const auto& change) {
    Schedule schedule = whole;
    std::vector<Op>& ops = ops_of(schedule, block);
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
      const auto* const body = std::get_if<decltype(of)>(&op.body);
      return body != nullptr && body->slice.first == 1;
    });
    change(ops, found, std::get<decltype(of)>(found->body));
    for (Block& one : schedule.blocks) {
      for (Op& op : one.ops) op.after.clear();
    }
    depend(schedule);
    return codes_of(schedule);
  };
  const auto left_out = [](auto& ops, auto found, auto&) { ops.erase(found); };
  const auto of_another = [](auto&, auto, auto& op) { op.slice.first = 2; };
  for (const char* const block : {"forward", "backward"}) {
    EXPECT_TRUE(damaged(block, Dispatch{}, of_another).count("S510"));
    EXPECT_TRUE(damaged(block, GroupedMatmul{}, of_another).count("S510"));
    EXPECT_TRUE(damaged(block, Activation{}, of_another).count("S510"));
    EXPECT_TRUE(damaged(block, Combine{}, of_another).count("S510"));
    EXPECT_TRUE(damaged(block, Combine{}, left_out).count("S510"));
    EXPECT_TRUE(damaged(block, Combine{}, [](auto&, auto, auto& op) {
                  op.y.accumulate = false;
                }).count("S510"));
    EXPECT_TRUE(damaged(block, GroupedMatmul{}, [](auto&, auto, auto& op) {
                  op.out.accumulate = true;
                }).count("S306"));
    EXPECT_TRUE(
        damaged(block, Activation{}, [](auto&, auto, auto& op) { op.slice = {}; }).count("S205"));
  }
  EXPECT_TRUE(damaged("backward", CombineBackward{}, left_out).count("S510"));
  EXPECT_TRUE(damaged("backward", CombineBackward{}, of_another).count("S510"));
  EXPECT_TRUE(damaged("backward", ActivationBackward{}, of_another).count("S510"));
  EXPECT_TRUE(damaged("backward", GroupedGradient{}, of_another).count("S510"));
  // A sum that ends in the gradient of another slice.
  Schedule astray = whole;
  const auto named = [](const auto& list, std::string_view name) {
    return std::find_if(list.begin(), list.end(),
                        [&](const auto& one) { return one.name == name; });
  };
  const auto other = named(astray.buffers, "grad.up.weight.0") - astray.buffers.begin();
  std::vector<Op>& backward = ops_of(astray, "backward");
  Op& reduce =
      backward[static_cast<std::size_t>(named(backward, "reduce_dw_up.0.0.1") - backward.begin())];
  std::get<ReduceScatter>(reduce.body).receive.front().operand.buffer =
      static_cast<BufferIndex>(other);
  EXPECT_EQ(codes_of(astray), (Codes{"S504", "S505"}));
  // Sums of slices receive the rows of all tiles.
  EXPECT_TRUE(
      after<GroupedGradient>([](GroupedGradient& op) { op.local_first += 1; }).count("S505"));
  EXPECT_TRUE(
      after<GroupedGradient>([](GroupedGradient& op) { op.slice.count = 5; }).count("S205"));
}

// Tiles of 2 rows: what a tile has is not what its neighbour has.
TEST_F(LoweredExperts, TilesAreNotMixed) {
  EXPECT_EQ(after<Dispatch>([](Dispatch& op) { op.x.row_first ^= 2; }), Codes{"S702"});
  // With slots for two tiles, each of them may be read as well as the other.
  const auto swapped = [&](const auto& change) {
    Schedule damaged = whole;
    for (Buffer& buffer : damaged.buffers) {
      buffer.offset = kUnplaced;
      for (const char* name : {"routes", "expert_rows", "expert_weights", "up"}) {
        if (buffer.name == name) buffer.slots = 2;
      }
    }
    bool first = true;
    for (Op& op : ops_of(damaged, "forward")) {
      std::visit(
          [&](auto& body) {
            if constexpr (requires { Operand{body.routes}; }) first = first && !change(body);
          },
          op.body);
    }
    EXPECT_FALSE(first) << "nothing was changed";
    for (Block& block : damaged.blocks) {
      for (Op& op : block.ops) op.after.clear();
    }
    depend(damaged);
    return codes_of(damaged);
  };
  const auto second = [](const Operand& operand) { return operand.version.offset == 1; };
  EXPECT_EQ(swapped([&](auto& body) {
              if (!std::is_same_v<std::decay_t<decltype(body)>, Dispatch>) return false;
              if (!second(body.routes)) return false;
              body.routes.version.offset = 0;
              return true;
            }),
            Codes{"S702"});
  EXPECT_EQ(swapped([&](auto& body) {
              if constexpr (std::is_same_v<std::decay_t<decltype(body)>, GroupedMatmul>) {
                if (!second(body.a)) return false;
                body.a.version.offset = 0;
                return true;
              }
              return false;
            }),
            Codes{"S702"});
}

TEST_F(LoweredExperts, LabelsAreThoseOfTheTile) {
  EXPECT_EQ(after<RouteBackward>([](RouteBackward& op) { op.labels.row_first ^= 2; }),
            Codes{"S702"});
  EXPECT_TRUE(after<RouteBackward>([](RouteBackward& op) { op.loads = {}; }).count("S205"));
}

TEST_F(LoweredExperts, ConstantsAreInRange) {
  EXPECT_TRUE(after<Route>([](Route& op) { op.active = 5; }).count("S205"));
  EXPECT_TRUE(after<Route>([](Route& op) { op.experts = kExpertsMost + 1; }).count("S205"));
  EXPECT_TRUE(after<Route>([](Route& op) { op.rows = std::int64_t{1} << 40; }).count("S205"));
  EXPECT_TRUE(after<Combine>([](Combine& op) { op.width = 0; }).count("S205"));
}

}  // namespace
}  // namespace fpdt
