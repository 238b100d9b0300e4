// A GPU as the programs see it. gpu.cpp knows CUDA; gpu_absent.cpp takes its place in a build
// without it, and says why there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// Of the calling thread.
struct OpenGpu {
  std::string name;      // as the driver calls it
  std::string versions;  // of driver and libraries, in words
  Bytes memory;          // as the driver counts it
  Bytes workspace;       // that each rank's backend keeps of it for its kernels
  // Used of it now: by this program and by others.
  std::function<Bytes()> used_memory;
  // Which algorithms of products were the fastest, as a JSON array: those of backends so far.
  std::function<std::string()> products;
  // Of each rank, on its own thread.
  std::function<std::unique_ptr<Backend>(Communicator&)> make_backend;
};

// InputError when there is no driver, no such GPU, one that is too old, or no CUDA in this build.
OpenGpu open_gpu(std::int32_t device, bool deterministic);

// What fpdt-run device prints: the GPU, its versions and memory, who holds memory; as JSON also
// the properties by which cuDNN chooses its engines. InputError as open_gpu.
std::string describe_gpu(std::int32_t device, bool json);

}  // namespace fpdt
