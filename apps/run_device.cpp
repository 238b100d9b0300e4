// Opens it and says what is there.
#include "run_device.h"

#include "fpdt/base/error.h"

#include "command.h"
#include "gpu.h"

namespace fpdt {

int run_device(const DeviceFlags& flags) {
  print_result(describe_gpu(flags.device, flags.json));
  return static_cast<int>(ExitCode::done);
}

}  // namespace fpdt
