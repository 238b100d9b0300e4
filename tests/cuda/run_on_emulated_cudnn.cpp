// Attention tiles of cuDNN, as emulated_cudnn.cpp plays it, under the tests of kernel_case.h.
#include "fpdt/cuda/cudnn_attention.h"

#include "../cpu/kernel_case.h"

namespace fpdt {

void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int) {
  const cuda::Frame frame{views, rank, nullptr, nullptr};
  cuda::AttentionPlans plans;
  const auto attend = [&](const auto& op) {
    plans.prepare(cuda::tile_of(op));
    plans.execute(op, frame);
  };
  if (const auto* forward = std::get_if<AttentionForward>(&body)) return attend(*forward);
  attend(std::get<AttentionBackward>(body));
}

}  // namespace fpdt
