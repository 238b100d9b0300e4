// The GPU's kernels on the emulator, under the tests of kernel_case.h: threads in several orders.
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"

#include "../cpu/kernel_case.h"
#include "device_under_test.h"
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
  // What the op before has left there must not matter.
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

DeviceBytes device_memory(std::int64_t bytes) {
  const auto room = static_cast<std::size_t>(round_up(bytes, 256));
  return {static_cast<std::byte*>(std::aligned_alloc(256, room)),
          [](std::byte* memory) { std::free(memory); }};
}
void upload(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}
void download(std::span<std::byte> to, const std::byte* from) {
  std::memcpy(to.data(), from, to.size());
}
cuda::Stream device_stream(int variant) {
  emulator::set({.seed = static_cast<std::uint64_t>(variant), .last_blocks = -1});
  return nullptr;
}
void synchronise_device() {}

}  // namespace fpdt
