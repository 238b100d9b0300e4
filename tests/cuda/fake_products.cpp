// Matrix products of the backend where there is no cuBLASLt: the CPU's kernel, on a fake stream.
#include <memory>
#include <vector>

#include "fpdt/cpu/kernels.h"
#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/matmul.h"

#include "backend_under_test.h"
#include "fake_runtime.h"

namespace fpdt {
namespace cuda {

struct Products::State {
  Pool pool{1};
  Kernels kernels{pool};
};

Products::Products() : state_(std::make_unique<State>()) {}
Products::~Products() = default;
void Products::prepare(const Matmul&, const Schedule&) {}

void Products::run(const Matmul& op, const Frame& frame, std::byte*) {
  const std::vector<View> views(frame.views.begin(), frame.views.end());
  fake::enqueue(frame.stream,
                [this, &op, views, rank = frame.rank] { state_->kernels.run(op, views, rank); });
}

}  // namespace cuda

std::unique_ptr<Backend> backend_under_test(Communicator& communicator, std::uint64_t seed) {
  if (communicator.rank() == 0) fake::set({.seed = seed});
  return std::make_unique<CudaBackend>(communicator, CudaOptions{});
}

}  // namespace fpdt
