// fpdt-run device: the GPUs that --backend cuda could use.
#include <memory>
#include <optional>

#include "fpdt/base/error.h"

#include "common/command.h"
#include "run/gpu.h"
#include "run/verbs.h"

namespace fpdt {
namespace {

constexpr std::int64_t kDevicesMax = 1024;  // more than any machine has

}  // namespace

Command declare_device(Options& options) {
  struct Flags {
    std::optional<std::int32_t> device;  // as CUDA counts them; absent: all
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  options.value("--device", flags->device, "Number of the GPU, as CUDA counts them; default: all")
      .integer(0, kDevicesMax);
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] {
    print_result(describe_gpus(flags->device, flags->json));
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace fpdt
