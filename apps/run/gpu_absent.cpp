// No GPU: this program was built without CUDA.
#include <fmt/format.h>

#include "fpdt/base/error.h"

#include "run/gpu.h"

namespace fpdt {
namespace {

[[noreturn]] void refuse() {
  throw InputError(
      fmt::format("this fpdt-run was built without CUDA ({}); see docs/gpu.md", FPDT_CUDA_WHY));
}

}  // namespace

std::int32_t count_gpus() { refuse(); }
std::unique_ptr<OpenGpus> open_gpus(const std::vector<std::int32_t>&, bool) { refuse(); }
std::string describe_gpus(std::optional<std::int32_t>, bool) { refuse(); }

}  // namespace fpdt
