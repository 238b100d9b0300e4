// Runs the tests of kernel_case.h on a GPU's kernels, and the tests of whole steps on the GPU
// backend. Operands are copied with their surroundings, so that a kernel that writes outside of
// them is caught.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <memory>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/shared_memory.h"
#include "fpdt/cuda/status.h"

#include "../cpu/kernel_case.h"
#include "backend_under_test.h"
#include "device_under_test.h"

namespace fpdt {
namespace {

template <class Op>
concept HasKernel = requires(const Op& op, const cuda::Frame& frame) {
  cuda::execute(op, frame);
};

// Bytes that KernelCase keeps on either side of an operand.
constexpr std::int64_t kAround = 256;

// Holds an operand and its surroundings on the device for a while.
class Visitor {
 public:
  explicit Visitor(const View& view)
      : host_(view.data - kAround),
        size_(static_cast<std::size_t>(view.bytes() + 2 * kAround)),
        memory_(Bytes{view.bytes() + 2 * kAround}, "an operand") {
    cuda::check(cudaMemcpy(memory_.bytes().data(), host_, size_, cudaMemcpyDefault), "there");
  }
  [[nodiscard]] std::byte* data() const { return memory_.bytes().data() + kAround; }
  void come_back() const {
    cuda::check(cudaMemcpy(host_, memory_.bytes().data(), size_, cudaMemcpyDefault), "and back");
  }

 private:
  std::byte* host_;
  std::size_t size_;
  cuda::DeviceMemory memory_;
};

// One buffer for each operand, numbered as in KernelCase.
Schedule schedule_of(const Body& body, std::span<const View> views) {
  Schedule schedule;
  std::size_t i = 0;
  for (const Use& use : operands(body)) {
    const auto number = static_cast<std::size_t>(use.operand.buffer);
    if (schedule.buffers.size() <= number) schedule.buffers.resize(number + 1);
    schedule.buffers[number].dtype = views[i].dtype;
    schedule.buffers[number].shape = {views[i].elements};
    ++i;
  }
  return schedule;
}

void run_with_libraries(const Matmul& op, const cuda::Frame& frame, const Schedule& schedule) {
  cuda::Products products;
  products.prepare(op, schedule, {});
  products.run(op, frame, frame.scratch + cuda::kScratchBytes);
  cuda::check(cudaStreamSynchronize(frame.stream), "a product");
}

// Never destroyed: at the end of the program the libraries that cuDNN loads are unloaded first.
cuda::AttentionPlans& tile_plans() {
  static cuda::AttentionPlans& plans = *new cuda::AttentionPlans;
  return plans;
}

void run_tile(const AttentionForward& tile, const cuda::Frame& frame) {
  if (!tile.workspace.present()) return cuda::execute(tile, frame);
  tile_plans().prepare(cuda::tile_of(tile, 0));
  tile_plans().execute(tile, frame);
}

void run_tile(const AttentionBackward& tile, const cuda::Frame& frame) {
  if (!tile.workspace.present()) return cuda::execute(tile, frame);
  const Bytes room{frame.view(tile, tile.workspace).bytes()};
  const std::int64_t members = tile_plans().members_within(room, cuda::tile_of(tile, 0));
  tile_plans().prepare(cuda::tile_of(tile, 0, members));
  tile_plans().execute(tile, members, frame);
}

}  // namespace

void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int) {
  static const cuda::Gpu gpu = cuda::open_gpu(0);
  static const cuda::DeviceMemory scratch(Bytes{cuda::kScratchBytes + cuda::kMatmulWorkspaceBytes},
                                          "scratch memory");
  cuda::check(cudaMemset(scratch.bytes().data(), 0xFF, scratch.bytes().size()), "scratch memory");
  std::vector<Visitor> visitors;
  std::vector<View> there(views.begin(), views.end());
  for (std::size_t i = 0; i < views.size(); ++i) {
    // An operand that occurs twice gets one buffer.
    std::size_t same = 0;
    while (views[same].data != views[i].data) ++same;
    visitors.emplace_back(views[i]);
    there[i].data = visitors[same].data();
  }
  const cuda::Frame frame{there, rank, nullptr, scratch.bytes().data()};
  std::visit(
      [&](const auto& op) {
        using Kind = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Kind, Matmul>) {
          run_with_libraries(op, frame, schedule_of(body, views));
        } else if constexpr (std::is_same_v<Kind, AttentionForward> ||
                             std::is_same_v<Kind, AttentionBackward>) {
          run_tile(op, frame);
        } else if constexpr (HasKernel<Kind>) {
          cuda::execute(op, frame);
        } else {
          throw InputError("a collective is no kernel");
        }
      },
      body);
  cuda::check(cudaDeviceSynchronize(), body_name(body));
  for (std::size_t i = 0; i < visitors.size(); ++i) {
    if (there[i].data == visitors[i].data()) visitors[i].come_back();
  }
}

namespace {

// After a fault of a kernel every call of the process fails. Ending it blames one test alone;
// tools/gpu-check runs the rest in another process.
class EndAfterFault : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const cudaError_t state = cudaDeviceSynchronize();
    if (state == cudaSuccess || state == cudaErrorNoDevice ||
        state == cudaErrorInsufficientDriver) {
      return;
    }
    std::fprintf(stderr, "%s.%s left the GPU with: %s\n", test.test_suite_name(), test.name(),
                 cudaGetErrorString(state));
    std::_Exit(EXIT_FAILURE);
  }
};

[[maybe_unused]] const bool watched = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new EndAfterFault);
  return true;
}();

}  // namespace

std::unique_ptr<Backend> backend_under_test(Communicator& communicator, std::uint64_t) {
  return std::make_unique<CudaBackend>(communicator, CudaOptions{});
}

DeviceBytes device_memory(std::int64_t bytes) {
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "memory of a test");
  cuda::check(cudaMemset(memory, 0xFF, static_cast<std::size_t>(bytes)), "memory of a test");
  return {static_cast<std::byte*>(memory),
          [](std::byte* taken) { static_cast<void>(cudaFree(taken)); }};
}

void upload(std::byte* to, std::span<const std::byte> from) {
  cuda::check(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyDefault), "there");
}

void download(std::span<std::byte> to, const std::byte* from) {
  cuda::check(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDefault), "and back");
}

cuda::Stream device_stream(int) { return nullptr; }

void limit_shared_memory(std::size_t bytes) { cuda::limit_shared_memory(bytes); }
void synchronise_device() { cuda::check(cudaDeviceSynchronize(), "a kernel"); }

std::int64_t rows_of_experiments() { return 32768; }

}  // namespace fpdt
