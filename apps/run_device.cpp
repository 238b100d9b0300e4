// fpdt-run device: the GPU that --backend cuda would use.
#include <memory>

#include "fpdt/base/error.h"

#include "command.h"
#include "gpu.h"
#include "machine.h"
#include "run_verbs.h"

namespace fpdt {

Command declare_device(Options& options) {
  struct Flags {
    std::int32_t device = 0;  // as CUDA counts them
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  options.value("--device", flags->device, "number of the GPU, as CUDA counts them")
      .shows_default()
      .integer(0, kDevicesMax);
  options.flag("--json", flags->json, "print one JSON object");
  return [flags] {
    print_result(describe_gpu(flags->device, flags->json));
    return static_cast<int>(ExitCode::done);
  };
}

}  // namespace fpdt
