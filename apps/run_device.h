// fpdt-run device: the GPU that --backend cuda would use.
#pragma once

#include <cstdint>

namespace fpdt {

struct DeviceFlags {
  std::int32_t device = 0;  // as CUDA counts them
  bool json = false;
};

int run_device(const DeviceFlags& flags);

}  // namespace fpdt
