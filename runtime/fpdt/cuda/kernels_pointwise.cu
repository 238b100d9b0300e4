// Ops without neighbours: fills, copies with conversion, permutations, activations.
//
// Bound by memory: bytes over the bandwidth is the napkin of each. A thread moves 16 bytes at a
// time where the operands' alignment allows it.
#include "fpdt/cuda/device.h"
#include "fpdt/cuda/kernels.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void fill(T* target, std::int64_t count, float value, bool accumulate) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    put(target + i, value, accumulate);
  }
}

}  // namespace

void execute(const Fill& op, const Frame& frame) {
  const View target = frame.view(op, op.target);
  with_float_type(target.dtype, [&](auto type) {
    using T = decltype(type);
    launch(fill<T>, grid_of(target.elements, kThreads, 1 << 16), kThreads, 0, frame.stream,
           elements<T>(target), target.elements, static_cast<float>(op.value), accumulates(target));
  });
}

}  // namespace fpdt::cuda
