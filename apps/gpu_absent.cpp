// No GPU: this program was built without CUDA.
#include <fmt/format.h>

#include "fpdt/base/error.h"

#include "gpu.h"

namespace fpdt {
namespace {

[[noreturn]] void refuse() {
  throw InputError(
      fmt::format("this fpdt-run was built without CUDA ({}); see docs/gpu.md", FPDT_CUDA_WHY));
}

}  // namespace

std::unique_ptr<OpenGpu> open_gpu(std::int32_t, bool) { refuse(); }
std::string describe_gpu(std::int32_t, bool) { refuse(); }

}  // namespace fpdt
