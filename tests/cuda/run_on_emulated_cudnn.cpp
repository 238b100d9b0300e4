// Runs the tests of kernel_case.h on cuDNN's attention tiles, as emulated_cudnn.cpp plays them.
#include "fpdt/cuda/cudnn_attention.h"

#include "../cpu/kernel_case.h"

namespace fpdt {

void run_kernel(const Body& body, std::span<const View> views, std::int64_t rank, int) {
  const cuda::Frame frame{views, rank, nullptr, nullptr};
  cuda::AttentionPlans plans;
  if (const auto* forward = std::get_if<AttentionForward>(&body)) {
    plans.prepare(cuda::tile_of(*forward, rank));
    return plans.execute(*forward, frame);
  }
  const auto& backward = std::get<AttentionBackward>(body);
  const Bytes room{frame.view(backward, backward.workspace).bytes()};
  const std::int64_t members = plans.members_within(room, cuda::tile_of(backward, rank));
  plans.prepare(cuda::tile_of(backward, rank, members));
  plans.execute(backward, members, frame);
}

}  // namespace fpdt
