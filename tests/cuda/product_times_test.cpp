// Which algorithm a product uses. Algorithms of a fake cuBLASLt take the times that a test sets, by
// the clock of a runtime on the host.
#include "fpdt/cuda/product_times.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/solo.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/runtime/executor.h"
#include "fpdt/schedule/verify.h"

#include "fake_cublaslt.h"
#include "fake_runtime.h"

namespace fpdt {
namespace {

constexpr std::int64_t kSize = 16;

class ProductTimesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::set({.own_clock = true});
    schedule_.problem = "{}";
    schedule_.groups.push_back({"all", 1, 1, {}});
    schedule_.blocks.push_back({"step", {}, {}});
    schedule_.train.push_back({0, 0, 0, 0});
    Matmul product;
    product.a = buffer("a", Role::input);
    product.b = buffer("b", Role::input);
    product.out.operand = buffer("out", Role::output);
    product.m = product.n = product.k = kSize;
    schedule_.blocks[0].ops.push_back({"product", {LaneKind::compute, 0}, product, {}});
  }
  void TearDown() override { fake::set_algorithms({{}}); }

  Operand buffer(const char* name, Role role) {
    schedule_.buffers.push_back({name,
                                 MemorySpace::device,
                                 role,
                                 Category::activations,
                                 Dtype::bf16,
                                 {kSize, kSize},
                                 1,
                                 end_});
    end_ += schedule_.buffers.back().bytes().value;
    return Operand{static_cast<BufferIndex>(schedule_.buffers.size() - 1), Version::at(0), 0, -1};
  }

  // The algorithm that a step runs.
  int taken(const std::vector<fake::Algorithm>& algorithms, const CudaOptions& options) {
    fake::set_algorithms(algorithms);
    const VerifiedSchedule file = verified(schedule_);
    SoloCommunicator alone(0, 1);
    CudaBackend backend(alone, options);
    Executor executor(file, backend, alone);
    timed_ = std::ssize(fake::take_runs());
    const std::vector<std::byte> ones(2 * kSize * kSize, std::byte{0x3C});
    executor.write(0, 0, ones);
    executor.write(1, 0, ones);
    executor.run(file.schedule().train);
    const std::vector<int> runs = fake::take_runs();
    EXPECT_EQ(runs.size(), 1U);
    return runs.empty() ? -1 : runs.front();
  }

  Schedule schedule_;
  std::int64_t end_ = 0;
  std::int64_t timed_ = 0;  // runs before the step
  cuda::ProductTimes times_;
  const CudaOptions measured_{.times = &times_};
};

TEST_F(ProductTimesTest, TheFastestIsTaken) {
  EXPECT_EQ(taken({{3e-3}, {2e-3}, {1e-3}, {4e-3}}, measured_), 2);
  EXPECT_NE(times_.json().find(R"("chosen":2,"of":4,"seconds":0.001,"first_seconds":0.003)"),
            std::string::npos)
      << times_.json();
  EXPECT_NE(times_.json().find("[16,16] [16,16] bf16 to bf16"), std::string::npos) << times_.json();
}

TEST_F(ProductTimesTest, OfNearlyEqualOnesTheFirst) {
  EXPECT_EQ(taken({{1e-3}, {0.99e-3}, {0.985e-3}}, measured_), 0);
}

TEST_F(ProductTimesTest, WhatCannotRunIsPassedOver) {
  EXPECT_EQ(
      taken({{3e-3}, {.seconds = 1e-3, .named = false}, {.seconds = 1e-3, .runs = false}, {2e-3}},
            measured_),
      3);
}

TEST_F(ProductTimesTest, FewAreTried) {
  std::vector<fake::Algorithm> many(20, {2e-3});
  many[15].seconds = 1e-3;
  EXPECT_EQ(taken(many, measured_), 0);
}

// Each product is measured once, even when another backend, perhaps of another rank, has it too.
TEST_F(ProductTimesTest, AllBackendsOfAProcessChooseAlike) {
  EXPECT_EQ(taken({{2e-3}, {1e-3}}, measured_), 1);
  EXPECT_GT(timed_, 0);
  EXPECT_EQ(taken({{1e-3}, {2e-3}}, measured_), 1);
  EXPECT_EQ(timed_, 0);
}

TEST_F(ProductTimesTest, TheFirstIsTakenWhereTheSameBitsArePromised) {
  const std::vector<fake::Algorithm> algorithms{{3e-3}, {1e-3}};
  EXPECT_EQ(taken(algorithms, {}), 0);
  EXPECT_EQ(taken(algorithms, {.deterministic = true, .times = &times_}), 0);
  EXPECT_EQ(timed_, 0);
  EXPECT_EQ(times_.json(), "[]");
}

// A schedule whose tiles are all our own gives the same bits without asking for them.
TEST_F(ProductTimesTest, SchedulesOfOurOwnTilesAreNotTimed) {
  AttentionForward tile;
  tile.heads = tile.kv_heads = 1;
  tile.head_dim = kSize;
  tile.q_rows = tile.k_rows = kSize;
  tile.q = buffer("q", Role::input);
  tile.kv = buffer("kv", Role::input);
  schedule_.buffers.back().shape = {kSize, 2 * kSize};
  end_ += kSize * kSize * 2;
  tile.o.operand = buffer("o", Role::output);
  tile.lse.operand = buffer("lse", Role::output);
  schedule_.buffers.back().dtype = Dtype::f32;
  schedule_.buffers.back().shape = {kSize, 1};
  schedule_.blocks[0].ops.push_back({"tile", {LaneKind::compute, 0}, tile, {}});
  EXPECT_EQ(taken({{3e-3}, {1e-3}}, measured_), 0);
}

TEST_F(ProductTimesTest, NoAlgorithmIsSaid) {
  EXPECT_THROW(taken({{.named = false}}, measured_), InputError);
}

}  // namespace
}  // namespace fpdt
