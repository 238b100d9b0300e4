// Schedules that store bf16, compared through their twins.
#include "fpdt/check/twins.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/check/check.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/schedule/stated.h"

#include "cases.h"

namespace fpdt {
namespace {

Case deep_case() {
  Case one = make_case(tiny_llama(), 2, 24, 8);
  one.problem.model.layers = 16;
  one.strategy.storage = Storage::bf16;
  return one;
}

CheckReport checked(const Case& one, const VerifiedSchedule& schedule) {
  CheckOptions options;
  options.ranks = Rig::one_thread();
  return check_schedule(schedule, one.problem, options);
}

// The check of a schedule in which `change` is applied to every body of type T.
template <class T, class Change>
CheckReport check_deep(const Change& change) {
  const Case one = deep_case();
  Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (T* const body = std::get_if<T>(&op.body)) change(*body);
    }
  }
  return checked(one, verified(std::move(schedule)));
}

// Errors that are smaller than the rounding of sixteen layers.
TEST(Twins, ShowErrorsThatRoundingHides) {
  EXPECT_TRUE(check_deep<Norm>([](Norm&) {}).agrees());
  EXPECT_FALSE(check_deep<NormBackward>([](NormBackward& op) { op.epsilon = 1e-3; }).agrees());
  EXPECT_FALSE(
      check_deep<AttentionBackward>([](AttentionBackward& op) { op.scale *= 1.01; }).agrees());
  EXPECT_FALSE(check_deep<JoinHeads>([](JoinHeads& op) { op.rotary.theta = 100; }).agrees());
}

TEST(Twins, WriteTheBitsOfTheSchedule) {
  const Case one = deep_case();
  const Lowered lowered = lower(one.problem, one.strategy);
  const CheckReport report = checked(one, lowered.schedule);
  ASSERT_TRUE(report.storage.has_value());
  EXPECT_EQ(report.storage->first_difference, "");
  EXPECT_TRUE(report.agrees());
}

// Runs a step with two logs, of which one saw another constant in an op of layer 3.
TEST(Twins, TheFirstOpThatDiffersIsNamed) {
  const Case one = make_case(tiny_llama(), 2, 24, 8);
  const Lowered lowered = lower(one.problem, one.strategy);
  const Schedule& schedule = lowered.schedule.schedule();
  Schedule other = schedule;
  for (Block& block : other.blocks) {
    for (Op& op : block.ops) {
      AttentionForward* const tile = std::get_if<AttentionForward>(&op.body);
      if (tile != nullptr && op.name == "attn.1.0") tile->scale *= 2;
    }
  }
  const VerifiedSchedule changed = verified(std::move(other));
  const auto logged = [&](const VerifiedSchedule& runs) {
    WriteLog log(runs.schedule());
    Trainer trainer(runs, one.problem, log.ranks(1));
    trainer.set_parameters(random_parameters(1));
    trainer.step(random_samples(one.problem, 1, 1), 1e-2);
    return log;
  };
  const WriteLog right = logged(lowered.schedule);
  EXPECT_FALSE(right.first_difference(logged(lowered.schedule), {schedule.train}).has_value());
  EXPECT_EQ(right.first_difference(logged(changed), {schedule.train}),
            "forward.attn.1.0 of layer 0 on rank 0");
}

class StatedConstants : public testing::Test {
 protected:
  ModelSpec model = tiny_qwen3();

  // The places of findings after `change` of the first body of type T.
  template <class T, class Change>
  std::string findings_after(const Change& change) {
    Case one = make_case(model, 2, 24, 8);
    one.strategy.storage = Storage::bf16;
    Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
    bool done = false;
    for (Block& block : schedule.blocks) {
      for (Op& op : block.ops) {
        T* const body = std::get_if<T>(&op.body);
        if (body == nullptr || done) continue;
        change(*body);
        done = true;
      }
    }
    EXPECT_TRUE(done);
    EXPECT_TRUE(verify(schedule).empty());
    return codes(verify_stated(schedule, stated_by(one.problem, one.strategy)));
  }

  static std::string codes(const std::vector<Diagnostic>& findings) {
    std::string all;
    for (const Diagnostic& one : findings) all += one.code;
    return all;
  }
};

TEST_F(StatedConstants, AreThoseOfTheProblem) {
  EXPECT_EQ(findings_after<Norm>([](Norm&) {}), "");
  EXPECT_EQ(findings_after<Norm>([](Norm& op) { op.epsilon = 1; }), "S801");
  EXPECT_EQ(findings_after<NormBackward>([](NormBackward& op) { op.epsilon = 1; }), "S801");
  EXPECT_EQ(findings_after<SplitHeads>([](SplitHeads& op) { op.epsilon = 1; }), "S801");
  EXPECT_EQ(findings_after<SplitHeads>([](SplitHeads& op) { op.rotary.theta = 100; }), "S801");
  EXPECT_EQ(findings_after<JoinHeads>([](JoinHeads& op) { op.rotary.magnitude = 2; }), "S801");
  EXPECT_EQ(findings_after<AttentionForward>([](AttentionForward& op) { op.scale = 1; }), "S801");
  EXPECT_EQ(findings_after<AttentionBackward>([](AttentionBackward& op) { op.scale = 1; }), "S801");
  EXPECT_EQ(findings_after<AttentionForward>([](AttentionForward& op) { op.cap = 1; }), "S801");
  EXPECT_EQ(findings_after<AttentionBackward>([](AttentionBackward& op) { op.cap = 1; }), "S801");
  EXPECT_EQ(findings_after<LossStatistics>([](LossStatistics& op) { op.cap = 1; }), "S801");
  EXPECT_EQ(findings_after<LossGradient>([](LossGradient& op) { op.cap = 1; }), "S801");
  EXPECT_EQ(findings_after<AdamW>([](AdamW& op) { op.beta1 = 0.5; }), "S801");
  EXPECT_EQ(findings_after<AdamW>([](AdamW& op) { op.weight_decay = 0.5; }), "S801");
  EXPECT_EQ(findings_after<SplitHeads>([](SplitHeads& op) { op.q_weight = op.k_weight = {}; }),
            "S801");
  model.joint_qk_norm = true;  // rewrites rows of bf16
  EXPECT_EQ(findings_after<NormColumns>([](NormColumns&) {}), "");
  EXPECT_EQ(findings_after<NormColumns>([](NormColumns& op) { op.epsilon = 1; }), "S801");
  EXPECT_EQ(findings_after<NormColumnsBackward>([](NormColumnsBackward& op) { op.epsilon = 1; }),
            "S801");
  EXPECT_EQ(findings_after<AdamW>([](AdamW& op) { op.clip = 0; }), "S801");
}

TEST_F(StatedConstants, RoutersAreThoseOfTheProblem) {
  model.experts = 4, model.active_experts = 2;
  model.sigmoid_router = true;
  EXPECT_EQ(findings_after<Route>([](Route&) {}), "");
  EXPECT_EQ(findings_after<Route>([](Route& op) { op.normalised = false; }), "S801");
  EXPECT_EQ(findings_after<Route>([](Route& op) { op.sigmoid = false, op.bias = {}; }), "S801");
  EXPECT_EQ(findings_after<RouteBackward>([](RouteBackward& op) { op.sigmoid = false; }), "S801");
  EXPECT_EQ(findings_after<Route>([](Route& op) { op.scale = 2; }), "S801");
  EXPECT_EQ(findings_after<RouteBackward>([](RouteBackward& op) { op.scale = 2; }), "S801");
}

TEST_F(StatedConstants, LossesOfRoutersAreThoseOfTheProblem) {
  model.experts = 4, model.active_experts = 2;
  model.z_loss = 0.1;
  EXPECT_EQ(findings_after<BalanceLoss>([](BalanceLoss&) {}), "");
  EXPECT_EQ(findings_after<BalanceLoss>([](BalanceLoss& op) { op.z = 1; }), "S801");
  EXPECT_EQ(findings_after<BalanceLoss>([](BalanceLoss& op) { op.balance = 1; }), "S801");
  EXPECT_EQ(findings_after<RouteBackward>([](RouteBackward& op) { op.z = 0; }), "S801");
}

// Blocks of dense layers that layers of experts call, and the reverse.
TEST_F(StatedConstants, DenseLayersAreThoseOfTheProblem) {
  model.experts = 4, model.active_experts = 2;
  model.kinds.resize(2, model.kinds.front());
  model.kinds.front().name = "dense", model.kinds.back().name = "experts";
  model.kinds.front().dense_feed_forward = 20;
  model.leading = {0};
  model.pattern = {1};
  const Case one = make_case(model, 2, 24, 8);
  const Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  Stated stated = stated_by(one.problem, one.strategy);
  EXPECT_EQ(codes(verify_stated(schedule, stated)), "");
  std::swap(stated.kinds.front().experts, stated.kinds.back().experts);
  const std::vector<Diagnostic> findings = verify_stated(schedule, stated);
  const auto says = [&](const char* words) {
    return std::any_of(findings.begin(), findings.end(), [&](const Diagnostic& found) {
      return found.code == "S801" && found.message.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(says("the block has no experts, and the problem says 4"));
  EXPECT_TRUE(says("experts is 4, and the problem says 0"));
}

// The rows of a block whose queries are not normed, or twice.
TEST_F(StatedConstants, JointNormsAreOneOfEachRow) {
  model.joint_qk_norm = true;
  const Case one = make_case(model, 2, 24, 8);
  const Stated stated = stated_by(one.problem, one.strategy);
  const Schedule right = lower(one.problem, one.strategy).schedule.schedule();
  EXPECT_EQ(codes(verify_stated(right, stated)), "");
  for (const bool twice : {false, true}) {
    Schedule wrong = right;
    const auto forward = std::find_if(wrong.blocks.begin(), wrong.blocks.end(),
                                      [](const Block& block) { return block.name == "forward"; });
    ASSERT_NE(forward, wrong.blocks.end());
    std::vector<Op>& ops = forward->ops;
    const auto norm = std::find_if(ops.begin(), ops.end(), [](const Op& op) {
      return std::holds_alternative<NormColumns>(op.body);
    });
    ASSERT_NE(norm, ops.end());
    const Op again = *norm;
    twice ? ops.insert(norm, again) : ops.erase(norm);
    EXPECT_EQ(codes(verify_stated(wrong, stated)), "S801");
  }
}

// One buffer of bf16, which nothing needs, made `check` expect the errors of bf16.
TEST_F(StatedConstants, StorageIsThatOfTheProblem) {
  const Case one = make_case(tiny_llama(), 1, 24, 8);
  Schedule schedule = lower(one.problem, one.strategy).schedule.schedule();
  const Stated stated = stated_by(one.problem, one.strategy);
  EXPECT_EQ(codes(verify_stated(schedule, stated)), "");
  for (Buffer& buffer : schedule.buffers) buffer.offset = kUnplaced;
  schedule.buffers.push_back({"unused",
                              MemorySpace::device,
                              Role::temporary,
                              Category::activations,
                              Dtype::bf16,
                              {4},
                              1,
                              kUnplaced});
  EXPECT_EQ(codes(verify_stated(schedule, stated)), "S802");
}

// Gradients wait in bf16 only where the problem says so.
TEST_F(StatedConstants, RoundedGradientsAreStated) {
  Case one = make_case(tiny_llama(), 1, 16, 8);
  one.strategy.storage = Storage::bf16;
  one.strategy.gradients = Storage::bf16;
  const Lowered lowered = lower(one.problem, one.strategy);
  EXPECT_EQ(codes(verify_stated(lowered.schedule.schedule(), stated_by(one.problem, one.strategy))),
            "");
  one.strategy.gradients = Storage::f32;
  const std::string found =
      codes(verify_stated(lowered.schedule.schedule(), stated_by(one.problem, one.strategy)));
  EXPECT_TRUE(found.starts_with("S802")) << found;
}

}  // namespace
}  // namespace fpdt
