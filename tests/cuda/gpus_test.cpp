// Ranks of one process on several GPUs, and the rules of which the fake runtime is sure.
#include <cuda_runtime_api.h>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/cudnn_plan.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/cuda/kernels_memory.h"
#include "fpdt/cuda/libraries.h"
#include "fpdt/cuda/memory.h"
#include "fpdt/cuda/shared_memory.h"
#include "fpdt/cuda/status.h"
#include "fpdt/cuda/streams.h"

#include "../train/cases.h"
#include "fake_runtime.h"

namespace fpdt {
namespace {

// Two ranks, or two replicas of two ranks.
Case on_ranks(std::int64_t ranks) {
  ModelSpec model = tiny_llama();
  model.layers = 1;
  model.head_dim = 8;
  Case one = make_case(model, ranks, 16, 8);
  one.strategy.storage = Storage::bf16;
  one.strategy.mesh.replicas = ranks / 2;
  return one;
}

// Rank r on gpus[r].
RankOptions on_gpus(const std::vector<std::int32_t>& gpus, bool peers = true) {
  RankOptions options;
  options.make_backend = [gpus, peers](Communicator& communicator) {
    CudaOptions own;
    own.device = gpus.at(static_cast<std::size_t>(communicator.rank()));
    if (peers) own.peers = gpus;
    return std::make_unique<CudaBackend>(communicator, own);
  };
  return options;
}

struct Outcome {
  std::vector<float> weights, moments;
  double loss = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(const Case& one, const std::vector<std::int32_t>& gpus) {
  Rig rig(one, on_gpus(gpus));
  rig.trainer.set_parameters(random_parameters(7));
  Outcome found;
  const std::vector<Sample> samples =
      random_samples(one.problem, rig.trainer.samples_per_step(), 3);
  rig.trainer.step(samples, 1e-2);
  found.loss = rig.trainer.evaluate(samples);
  found.weights = all_of(rig.trainer, "weight");
  found.moments = all_of(rig.trainer, "moment2");
  return found;
}

TEST(Gpus, SameBitsOnAnyNumber) {
  using Gpus = std::vector<std::int32_t>;
  for (const auto& [ranks, places] :
       {std::pair{2, std::vector<Gpus>{{0, 1}}},
        std::pair{4, std::vector<Gpus>{{0, 0, 1, 1}, {3, 1, 0, 2}}}}) {
    const Case one = on_ranks(ranks);
    fake::set({.seed = 5});
    const Outcome alone = outcome(one, Gpus(static_cast<std::size_t>(ranks), 0));
    for (const Gpus& gpus : places) {
      fake::set({.seed = 9, .devices = 4});
      EXPECT_TRUE(outcome(one, gpus) == alone)
          << fmt::format("{} ranks, the first on GPU {}", ranks, gpus.front());
    }
  }
}

TEST(Gpus, EachHoldsItsOwnRanksAndTheRestIsNotTouched) {
  fake::set({.devices = 8});
  const Case one = on_ranks(4);
  {
    const Rig rig(one, on_gpus({2, 5, 5, 2}));
    EXPECT_EQ(fake::touched(), (std::set<int>{2, 5}));
    EXPECT_GT(fake::allocated(2), 0);
    EXPECT_EQ(fake::allocated(5), fake::allocated(2));
    EXPECT_EQ(fake::allocated(), 2 * fake::allocated(2));
  }
  EXPECT_EQ(fake::touched(), (std::set<int>{2, 5}));
  EXPECT_EQ(fake::allocated(), 0);
  EXPECT_EQ(fake::events(), 0);
}

TEST(Gpus, MemoryThatIsMissingIsThatOfOne) {
  fake::set({.memory = 1 << 16, .devices = 2});
  try {
    const Rig rig(on_ranks(2), on_gpus({1, 1}));
    FAIL() << "64 KiB were enough";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("64.0 KiB is free on GPU 1"), std::string::npos)
        << error.what();
  }
}

std::string refusal(const std::vector<std::int32_t>& gpus) {
  try {
    cuda::require_team(gpus);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Gpus, OfATeamAreOfOneModelAndReadEachOther) {
  fake::set({.devices = 4, .models = {"A", "B", "A", "A"}, .no_peers = {{3, 2}}});
  EXPECT_EQ(refusal({0, 2}), "");
  EXPECT_EQ(refusal({1}), "");
  EXPECT_EQ(refusal({0, 1, 2}),
            "GPU 1 is a B, but GPU 0 is a A: the ranks of a schedule need GPUs of one model; give "
            "--device 0,2");
  EXPECT_NE(refusal({2, 3}).find("GPU 3 cannot read the memory of GPU 2 ("), std::string::npos);
  EXPECT_NE(refusal({2, 3}).find("--device 3"), std::string::npos);
  EXPECT_EQ(fake::touched(), std::set<int>{});
  EXPECT_THROW(cuda::enable_peers(3, std::vector{2}), InputError);
}

TEST(Gpus, AccessMayBeEnabledByEachRank) {
  fake::set({.devices = 3});
  for (int rank = 0; rank < 2; ++rank) cuda::enable_peers(1, std::vector{0, 1, 1});
  EXPECT_EQ(fake::touched(), (std::set<int>{0, 1}));
}

TEST(Gpus, SharedMemoryIsAskedForOnEach) {
  fake::set({.devices = 2});
  const char kernel{};
  const std::int64_t before = fake::attribute_calls();
  for (int i = 0; i < 2; ++i) {
    for (const int gpu : {0, 1}) {
      cuda::use_gpu(gpu);
      cuda::allow_shared_memory(&kernel);
    }
  }
  EXPECT_EQ(fake::attribute_calls() - before, 2);
}

// Mistakes, each planted once. What a GPU has of everything is made with that GPU chosen.
class Mistakes : public testing::Test {
 protected:
  struct Own {
    explicit Own(int index) : gpu(index) {
      cuda::use_gpu(gpu);
      memory = cuda::DeviceMemory(Bytes{256}, "memory of a test");
      event = std::make_unique<cuda::DeviceEvent>(cuda::DeviceEvent::Times::yes);
      cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "a stream");
    }
    ~Own() {
      cuda::use_gpu(gpu);
      memory = {};
      event.reset();
      static_cast<void>(cudaStreamDestroy(stream));
    }
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;

    int gpu;
    cuda::DeviceMemory memory;
    std::unique_ptr<cuda::DeviceEvent> event;
    cudaStream_t stream = nullptr;
  };

  void SetUp() override {
    fake::set({.devices = 2});
    zero_ = std::make_unique<Own>(0);
    one_ = std::make_unique<Own>(1);  // stays chosen
  }

  std::unique_ptr<Own> zero_, one_;
};

constexpr const char* kOther = "wrong use of CUDA: .*GPU 1 is chosen for what belongs to GPU 0";

TEST_F(Mistakes, AThreadThatChoseNoGpu) {
  const auto elsewhere = [](const auto& call) { std::thread(call).join(); };
  constexpr const char* kNone = "wrong use of CUDA: .*chosen no GPU";
  EXPECT_DEATH(elsewhere([] { cuda::DeviceMemory(Bytes{256}, "memory"); }), kNone);
  EXPECT_DEATH(elsewhere([] { cuda::DeviceEvent(cuda::DeviceEvent::Times::no); }), kNone);
  EXPECT_DEATH(elsewhere([&] { static_cast<void>(cudaStreamSynchronize(nullptr)); }), kNone);
  EXPECT_DEATH(elsewhere([&] { cuda::poison(zero_->memory.bytes(), zero_->stream); }), kNone);
  char byte = 0;
  EXPECT_DEATH(elsewhere([&] { static_cast<void>(cudaHostRegister(&byte, 1, 0)); }), kNone);
}

TEST_F(Mistakes, AStreamOfAnotherGpu) {
  EXPECT_DEATH(cuda::poison(zero_->memory.bytes(), zero_->stream), kOther);
  EXPECT_DEATH(static_cast<void>(cudaStreamSynchronize(zero_->stream)), kOther);
  EXPECT_DEATH(static_cast<void>(cudaStreamWaitEvent(zero_->stream, one_->event->get(), 0)),
               kOther);
  EXPECT_DEATH(static_cast<void>(cudaStreamDestroy(zero_->stream)), kOther);
}

TEST_F(Mistakes, AnEventOfAnotherGpu) {
  const cudaEvent_t event = zero_->event->get();
  EXPECT_DEATH(static_cast<void>(cudaEventRecord(event, one_->stream)),
               "a stream of GPU 1 records an event of GPU 0");
  EXPECT_DEATH(static_cast<void>(cudaEventRecord(event, zero_->stream)), kOther);
  EXPECT_DEATH(static_cast<void>(cudaEventSynchronize(event)), kOther);
  EXPECT_DEATH(static_cast<void>(cudaEventDestroy(event)), kOther);
  float milliseconds = 0;
  EXPECT_DEATH(static_cast<void>(cudaEventElapsedTime(&milliseconds, one_->event->get(), event)),
               kOther);
  EXPECT_EQ(cudaStreamWaitEvent(one_->stream, event, 0), cudaSuccess);  // no mistake
}

TEST_F(Mistakes, MemoryOfAnotherGpu) {
  char byte = 0;
  std::byte* const place = zero_->memory.bytes().data();
  EXPECT_DEATH(static_cast<void>(cudaFree(place)), kOther);
  EXPECT_DEATH(static_cast<void>(cudaMemcpy(&byte, place, 1, cudaMemcpyDefault)), kOther);
  EXPECT_DEATH(static_cast<void>(cudaMemcpy(place, &byte, 1, cudaMemcpyDefault)), kOther);
}

TEST_F(Mistakes, AKernelWithoutAccess) {
  const auto on_one = [&] { cuda::poison(zero_->memory.bytes(), one_->stream); };
  constexpr const char* kNoAccess = "GPU 1 has no access to the memory of GPU 0";
  EXPECT_DEATH(on_one(), kNoAccess);
  EXPECT_DEATH(
      static_cast<void>(cudaMemcpyAsync(one_->memory.bytes().data(), zero_->memory.bytes().data(),
                                        1, cudaMemcpyDefault, one_->stream)),
      kNoAccess);
  cuda::enable_peers(0, std::vector{1});  // the wrong direction
  cuda::use_gpu(1);
  EXPECT_DEATH(on_one(), kNoAccess);
  cuda::enable_peers(1, std::vector{0});
  on_one();
  EXPECT_EQ(cudaStreamSynchronize(one_->stream), cudaSuccess);
}

TEST_F(Mistakes, AHandleOfAnotherGpu) {
  cuda::use_gpu(0);
  const cuda::CudnnHandle cudnn = cuda::make_cudnn_handle();
  cublasLtHandle_t products = nullptr;
  cuda::cublaslt().cublasLtCreate(&products);
  cuda::use_gpu(1);
  const cuda::CublasLt& table = cuda::cublaslt();
  constexpr const char* kWrong = "handle == .*handle_of_current_gpu";
  EXPECT_DEATH(table.cublasLtMatmulAlgoGetHeuristic(products, nullptr, nullptr, nullptr, nullptr,
                                                    nullptr, nullptr, 0, nullptr, nullptr),
               kWrong);
  EXPECT_DEATH(
      table.cublasLtMatmul(products, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                           nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, one_->stream),
      kWrong);
  EXPECT_DEATH(table.cublasLtDestroy(products), kWrong);
  const cuda::GraphPlan plan(cuda::Graph(), {}, "a plan", "");
  EXPECT_DEATH(plan.run(cudnn.get(), one_->stream, {}, nullptr), kWrong);
  cuda::use_gpu(0);
  table.cublasLtDestroy(products);
}

TEST(Gpus, RanksWithoutAccessToEachOtherAreCaught) {
  fake::set({.devices = 2});
  const Case one = on_ranks(2);
  const auto step = [&] {
    Rig rig(one, on_gpus({0, 1}, false));
    rig.trainer.set_parameters(random_parameters(7));
    rig.trainer.step(random_samples(one.problem, rig.trainer.samples_per_step(), 3), 1e-2);
  };
  EXPECT_DEATH(step(), "has no access to the memory of GPU");
}

}  // namespace
}  // namespace fpdt
