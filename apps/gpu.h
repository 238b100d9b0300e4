// A GPU as the programs see it. gpu.cpp knows CUDA; gpu_absent.cpp takes its place in a build
// without it, and says why there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fpdt/base/units.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// A GPU that this program uses, opened for the calling thread.
class OpenGpu {
 public:
  virtual ~OpenGpu() = default;

  std::string name;      // as the driver calls it
  std::string versions;  // of driver and libraries, in words
  Bytes memory;          // as the driver counts it
  Bytes workspace;       // of it, what the backend of each rank keeps for its kernels

  // What is in use now, by this program and by others.
  [[nodiscard]] virtual Bytes used_memory() const = 0;
  // The algorithms that were the fastest for the products of its backends so far: a JSON array.
  [[nodiscard]] virtual std::string products() const = 0;
  // Called by each rank on its own thread. The GPU outlives the backend.
  virtual std::unique_ptr<Backend> make_backend(Communicator& communicator) = 0;
};

// InputError when there is no driver, no such GPU, one that is too old, or no CUDA in this build.
std::unique_ptr<OpenGpu> open_gpu(std::int32_t device, bool deterministic);

// What fpdt-run device prints: the GPU, its versions and memory, and who holds memory; as JSON also
// the properties by which cuDNN chooses its engines. InputError as open_gpu.
std::string describe_gpu(std::int32_t device, bool json);

}  // namespace fpdt
