// Faults that depend on one choice of a strategy, and what bisect concludes.
#include "fpdt/check/bisect.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <variant>

#include <gtest/gtest.h>

#include "fpdt/cpu/backend.h"
#include "fpdt/plan/lower.h"

#include "cases.h"

namespace fpdt {
namespace {

// A CPU backend that changes ops before they run.
class FaultyBackend final : public CpuBackend {
 public:
  using Fault = std::function<void(Op&)>;
  FaultyBackend(Communicator& communicator, Fault fault)
      : CpuBackend(communicator, {1, Populate::no}), fault_(std::move(fault)) {}

  void launch(const Launch& launch) override {
    Launch changed = launch;
    changed.op = &ops_.emplace_back(*launch.op);
    fault_(ops_.back());
    CpuBackend::launch(changed);
  }
  void synchronise() override {
    CpuBackend::synchronise();
    ops_.clear();
  }

 private:
  Fault fault_;
  std::deque<Op> ops_;  // ops of this step
};

// Four chunks on two ranks; everything is spilled and recomputed.
Case four_chunks() { return make_case(tiny_llama(), 2, 32, 8); }

Bisection bisect_with(const Case& one, FaultyBackend::Fault fault) {
  CheckOptions options;
  options.ranks.make_backend = [fault](Communicator& communicator) {
    return std::make_unique<FaultyBackend>(communicator, fault);
  };
  const Lowering lowering = [](const Problem& problem, const Strategy& strategy) {
    return lower(problem, strategy).schedule;
  };
  return bisect(lowering(one.problem, one.strategy), one.problem, one.strategy, options, lowering,
                [](std::string_view) {});
}

TEST(Bisect, SoundScheduleHasNoVariantThatDiffers) {
  Case one = four_chunks();
  one.strategy.micro_batches = 2;
  one.strategy.offload_states(true);
  one.strategy.storage = Storage::bf16;
  const Bisection found = bisect_with(one, [](Op&) {});
  EXPECT_TRUE(found.agrees());
  EXPECT_GE(found.variants.size(), 12U);
  for (const Trial& trial : found.variants) {
    EXPECT_TRUE(trial.agrees()) << trial.change << ": " << trial.failure;
  }
  EXPECT_EQ(found.conclusion(), "The schedule agrees with the reference, and no variant differs.");
}

TEST(Bisect, NamesTheChunksWhereLaterOnesAreWrong) {
  const Bisection found = bisect_with(four_chunks(), [](Op& op) {
    auto* const tile = std::get_if<AttentionForward>(&op.body);
    if (tile != nullptr && tile->k_first.at(0) > 0) tile->scale *= 1.5;
  });
  EXPECT_TRUE(found.schedule.disagrees());
  EXPECT_TRUE(found.lowered_again.disagrees());
  EXPECT_EQ(found.conclusion(), "The error goes away with: one chunk.");
}

TEST(Bisect, NamesEveryChangeThatHelps) {
  const Bisection found = bisect_with(four_chunks(), [](Op& op) {
    auto* const tile = std::get_if<AttentionForward>(&op.body);
    if (tile != nullptr && tile->pass == Pass::recompute && tile->k_first.at(0) > 0)
      tile->scale *= 1.5;
  });
  EXPECT_EQ(found.conclusion(), "The error goes away with: one chunk, nothing recomputed.");
}

TEST(Bisect, BlamesTheKernelsWhereNothingHelps) {
  const Bisection found = bisect_with(four_chunks(), [](Op& op) {
    if (auto* const update = std::get_if<AdamW>(&op.body)) update->beta1 /= 2;
  });
  EXPECT_TRUE(found.schedule.disagrees());
  EXPECT_EQ(found.conclusion(),
            "No change makes the error go away: look at the kernels rather than at the strategy.");
}

// A norm that is not finite ends a step and counts as an error like any other.
TEST(Bisect, ANormThatIsNotFiniteIsAnError) {
  const Bisection found = bisect_with(four_chunks(), [](Op& op) {
    auto* const tile = std::get_if<AttentionForward>(&op.body);
    if (tile != nullptr && tile->k_first.at(0) > 0) tile->scale = HUGE_VAL;
  });
  EXPECT_TRUE(found.schedule.disagrees());
  EXPECT_NE(found.schedule.failure, "");
  EXPECT_EQ(found.conclusion(), "The error goes away with: one chunk.");
}

TEST(Bisect, TwoFaultsTakeTwoChanges) {
  const Bisection found = bisect_with(four_chunks(), [](Op& op) {
    auto* const tile = std::get_if<AttentionForward>(&op.body);
    if (tile == nullptr) return;
    if (tile->k_first.at(0) > 0) tile->scale *= 1.5;
    if (tile->heads < 4) tile->scale *= 1.5;  // a tile of one of several ranks
  });
  EXPECT_EQ(found.conclusion(),
            "No single change makes the error go away, but all of them together do.");
}

// Without documents the padding would go beyond the last learned position.
TEST(Bisect, WhatCannotBeLoweredSaysNothing) {
  Case one = make_case(tiny_gpt(), 2, 37, 8);
  one.problem.model.learned_positions = 37;
  const Bisection found = bisect_with(one, [](Op&) {});
  EXPECT_TRUE(found.agrees());
  const auto joined =
      std::find_if(found.variants.begin(), found.variants.end(),
                   [](const Trial& trial) { return trial.change == "one document per sequence"; });
  ASSERT_NE(joined, found.variants.end());
  EXPECT_FALSE(joined->ran);
  EXPECT_NE(joined->failure.find("learned positions"), std::string::npos) << joined->failure;
}

}  // namespace
}  // namespace fpdt
