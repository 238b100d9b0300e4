// Rank threads that persist between steps, and the consequences when one of them fails.
#include "fpdt/train/ranks.h"

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/comm/local.h"
#include "fpdt/cpu/backend.h"

#include "cases.h"

namespace fpdt {
namespace {

// Fails at one op of one step, or when memory is reserved.
class FailingBackend final : public CpuBackend {
 public:
  FailingBackend(Communicator& communicator, bool in_reserve, std::int64_t at_launch)
      : CpuBackend(communicator, {1, Populate::no}), in_reserve_(in_reserve), left_(at_launch) {}

  std::byte* reserve(MemorySpace space, Bytes bytes) override {
    if (in_reserve_) throw MemoryError("no memory on this rank");
    return CpuBackend::reserve(space, bytes);
  }
  void launch(const Launch& launch) override {
    if (left_-- == 0) throw NumericError("this op fails");
    CpuBackend::launch(launch);
  }

 private:
  bool in_reserve_;
  std::int64_t left_;
};

RankOptions failing(std::int64_t rank, bool in_reserve, std::int64_t at_launch) {
  RankOptions options;
  options.make_backend = [=](Communicator& communicator) -> std::unique_ptr<Backend> {
    if (communicator.rank() != rank)
      return std::make_unique<CpuBackend>(communicator, CpuOptions{1, {}});
    return std::make_unique<FailingBackend>(communicator, in_reserve, at_launch);
  };
  return options;
}

TEST(Ranks, RunSteps) {
  Rig rig(make_case(tiny_llama(), 4, 16, 8));
  EXPECT_TRUE(rig.trainer.ranks().world().complete());
  EXPECT_EQ(rig.trainer.ranks().present().size(), 4U);
  rig.trainer.set_parameters(initial_parameters(1));
  const std::vector<Sample> samples = random_samples(rig.trainer.problem(), 1, 3);
  EXPECT_NE(rig.trainer.step(samples, 1e-3).loss, rig.trainer.step(samples, 1e-3).loss);
}

TEST(Ranks, AFailureBeforeTheFirstStepIsThrownByTheConstructor) {
  const Case one = make_case(tiny_llama(), 4, 16, 8);
  EXPECT_THROW(Rig(one, failing(2, true, -1)), MemoryError);
}

TEST(Ranks, AFailureInAStepIsThrownByRunAndEndsAllRanks) {
  const Case one = make_case(tiny_llama(), 4, 16, 8);
  Rig rig(one, failing(1, false, 20));
  rig.trainer.set_parameters(initial_parameters(1));
  const std::vector<Sample> samples = random_samples(one.problem, 1, 3);
  EXPECT_THROW(rig.trainer.step(samples, 1e-3), NumericError);
  EXPECT_THROW(rig.trainer.step(samples, 1e-3), NumericError);
}

TEST(Ranks, OneMayRunAlone) {
  RankOptions options = Rig::one_thread();
  LocalWorld alone(2, 4);
  options.world = &alone;
  Rig rig(make_case(tiny_llama(), 4, 16, 8), options);
  EXPECT_FALSE(rig.trainer.ranks().world().complete());
  EXPECT_EQ(rig.trainer.ranks().present(), std::vector<std::int64_t>{2});
  rig.trainer.set_parameters(initial_parameters(1));
  EXPECT_GT(rig.trainer.step(random_samples(rig.trainer.problem(), 1, 3), 1e-3).loss, 0);
}

}  // namespace
}  // namespace fpdt
