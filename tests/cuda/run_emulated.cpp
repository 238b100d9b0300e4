// Runs the tests of kernel_case.h on the GPU's kernels on the emulator, with threads in several
// orders.
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "fpdt/cuda/kernels.h"

#include "../cpu/kernel_case.h"
#include "simt.h"

namespace fpdt {
namespace {

template <class Op>
concept HasKernel = requires(const Op& op, const cuda::Frame& frame) {
  cuda::execute(op, frame);
};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int variant) {
  // Results must not depend on what an earlier op left here.
  static const std::unique_ptr<std::byte, Free> scratch(
      static_cast<std::byte*>(std::aligned_alloc(256, cuda::kScratchBytes)));
  std::memset(scratch.get(), 0xFF, cuda::kScratchBytes);
  emulator::set({.seed = static_cast<std::uint64_t>(variant), .last_blocks = -1});
  const cuda::Frame frame{views, rank, nullptr, scratch.get()};
  std::visit(
      [&frame](const auto& op) {
        if constexpr (HasKernel<std::decay_t<decltype(op)>>) {
          cuda::execute(op, frame);
        } else {
          throw std::logic_error("no kernel of ours");
        }
      },
      body);
}

}  // namespace fpdt
