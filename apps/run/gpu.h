// GPUs as the programs see them. gpu.cpp knows CUDA; gpu_absent.cpp takes its place in a build
// without it, and says why there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// A GPU, and how many ranks run on it.
struct GpuShare {
  std::int32_t gpu = 0;  // as CUDA counts them
  std::int64_t ranks = 0;
};

// The GPUs that this program uses, all of one model.
class OpenGpus {
 public:
  virtual ~OpenGpus() = default;

  std::string name;  // as the driver calls them
  Bytes memory;      // of each, as the driver counts it
  Bytes workspace;   // of it, what the backend of each rank keeps for its kernels
  std::vector<GpuShare> shares;
  std::vector<std::int32_t> numa_nodes;  // the nearest to the GPU of each rank; -1: unknown

  // The place of a rank among those here. A rank whose peers are elsewhere is the only one.
  [[nodiscard]] std::size_t index_of(const Communicator& communicator) const {
    return numa_nodes.size() == 1 ? 0 : static_cast<std::size_t>(communicator.rank());
  }

  // The versions of driver and libraries, in words.
  [[nodiscard]] virtual std::string versions() const = 0;
  // Why cuDNN cannot compute attention tiles; "": it can.
  [[nodiscard]] virtual std::string why_no_cudnn() const = 0;
  // The memory in use on the GPU of each of `shares`, by this program and by others. Changes which
  // GPU is current for the calling thread.
  [[nodiscard]] virtual std::vector<Bytes> used_memory() const = 0;
  // The algorithms that were the fastest for the products of its backends so far: a JSON array.
  [[nodiscard]] virtual std::string products() const = 0;
  // Called by each rank on its own thread. The GPUs outlive the backend.
  virtual std::unique_ptr<Backend> make_backend(Communicator& communicator) = 0;
};

// The number of GPUs, at least 1. InputError when there is no driver, no GPU, or no CUDA in this
// build.
std::int32_t count_gpus();

// `gpus[i]`: where the i-th rank of this process runs; ranks on one GPU follow each other. Touches
// no other GPU. InputError as count_gpus, and when there is no such GPU, when one is too old, and
// when they are of different models or cannot read each other's memory.
std::unique_ptr<OpenGpus> open_gpus(const std::vector<std::int32_t>& gpus, bool deterministic);

// The text that fpdt-run device prints about one GPU, or all: properties, versions and memory, and
// who holds memory; as JSON also the properties by which cuDNN chooses its engines. InputError as
// open_gpus.
std::string describe_gpus(std::optional<std::int32_t> gpu, bool json);

}  // namespace fpdt
