// CUDA's device as an OpenGpu.
#include "gpu.h"

#include <fmt/format.h>

#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/cudnn_properties.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/io/json.h"

namespace fpdt {
namespace {

// Of this process, which opens one GPU.
cuda::ProductTimes& product_times() {
  static cuda::ProductTimes times;
  return times;
}

// 91900 is 9.19.0, and 130100 is 13.1.0.
std::string version_text(std::int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// 13000 is 13.0.
std::string cuda_version_text(std::int32_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string versions_of(const cuda::Gpu& gpu) {
  return fmt::format("CUDA {} (driver for {}), cuBLASLt {}, cuDNN {}",
                     cuda_version_text(gpu.runtime), cuda_version_text(gpu.driver),
                     version_text(gpu.cublas), version_text(gpu.cudnn));
}

std::string in_words(const cuda::Gpu& gpu) {
  std::string text = fmt::format(
      "GPU {}: {}, compute capability {}.{}, {} multiprocessors, bus {}, NUMA node {}\n", gpu.index,
      gpu.name, gpu.architecture / 10, gpu.architecture % 10, gpu.multiprocessors, gpu.bus,
      gpu.numa_node < 0 ? "unknown" : std::to_string(gpu.numa_node));
  text += versions_of(gpu) + "\n";
  text += fmt::format("memory: {}, {} free beside the context of this program\n",
                      format_bytes(gpu.memory), format_bytes(gpu.free));
  for (const cuda::Holder& one : cuda::holders(gpu)) {
    text += fmt::format("held by {} (process {}): {}\n", one.name, one.process,
                        format_bytes(one.bytes));
  }
  return text;
}

std::string all_as_json(const cuda::Gpu& gpu) {
  std::string held;
  for (const cuda::Holder& one : cuda::holders(gpu)) {
    held += fmt::format("{}{{\"process\":{},\"name\":{},\"bytes\":{}}}", held.empty() ? "" : ",",
                        one.process, json_string(one.name), one.bytes.value);
  }
  return fmt::format("{{\"gpu\":{},\"holders\":[{}],\"cudnn_device_properties\":{}}}\n",
                     cuda::json(gpu), held, cuda::json(cuda::device_properties(gpu.index)));
}

}  // namespace

OpenGpu open_gpu(std::int32_t device, bool deterministic) {
  const cuda::Gpu gpu = cuda::open_gpu(device);
  OpenGpu open;
  open.name = gpu.name;
  open.versions = versions_of(gpu);
  open.memory = gpu.memory;
  open.workspace = Bytes{cuda::kScratchBytes + cuda::kMatmulWorkspaceBytes};
  open.used_memory = [memory = gpu.memory] { return memory - cuda::free_device_memory(); };
  open.products = [] { return product_times().json(); };
  open.make_backend = [device, deterministic](Communicator& communicator) {
    return std::make_unique<CudaBackend>(communicator,
                                         CudaOptions{device, deterministic, &product_times()});
  };
  return open;
}

std::string describe_gpu(std::int32_t device, bool as_json) {
  const cuda::Gpu gpu = cuda::open_gpu(device);
  return as_json ? all_as_json(gpu) : in_words(gpu);
}

}  // namespace fpdt
