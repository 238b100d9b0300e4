// A device of CUDA as an OpenGpu.
#include "gpu.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/cudnn_properties.h"
#include "fpdt/cuda/gpu.h"

#include "command.h"

namespace fpdt {
namespace {

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
  for (const cuda::Holder& one : cuda::holders(gpu.index)) {
    text += fmt::format("held by {} (process {}): {}\n", one.name, one.process,
                        format_bytes(one.bytes));
  }
  return text;
}

Json as_json(const cuda::Gpu& gpu) {
  Json holders = Json::array();
  for (const cuda::Holder& one : cuda::holders(gpu.index)) {
    holders.push_back({{"process", one.process}, {"name", one.name}, {"bytes", one.bytes.value}});
  }
  const Json properties{
      {"index", gpu.index},
      {"name", gpu.name},
      {"bus", gpu.bus},
      {"compute_capability", fmt::format("{}.{}", gpu.architecture / 10, gpu.architecture % 10)},
      {"multiprocessors", gpu.multiprocessors},
      {"numa_node", gpu.numa_node},
      {"memory_bytes", gpu.memory.value},
      {"free_bytes", gpu.free.value},
      {"driver", cuda_version_text(gpu.driver)},
      {"runtime", cuda_version_text(gpu.runtime)},
      {"cublaslt", gpu.cublas},
      {"cudnn", gpu.cudnn}};
  return {{"gpu", properties},
          {"holders", holders},
          {"cudnn_device_properties", Json::parse(cuda::json(cuda::device_properties(gpu.index)))}};
}

class CudaGpu final : public OpenGpu {
 public:
  CudaGpu(const cuda::Gpu& gpu, bool deterministic)
      : device_(gpu.index), deterministic_(deterministic) {
    name = gpu.name;
    versions = versions_of(gpu);
    memory = gpu.memory;
    workspace = Bytes{cuda::kScratchBytes + cuda::kMatmulWorkspaceBytes};
  }
  [[nodiscard]] Bytes used_memory() const override { return memory - cuda::free_device_memory(); }
  [[nodiscard]] std::string products() const override { return product_times_.json(); }
  std::unique_ptr<Backend> make_backend(Communicator& communicator) override {
    return std::make_unique<CudaBackend>(communicator,
                                         CudaOptions{device_, deterministic_, &product_times_});
  }

 private:
  std::int32_t device_;
  bool deterministic_;
  cuda::ProductTimes product_times_;  // of all ranks
};

}  // namespace

std::unique_ptr<OpenGpu> open_gpu(std::int32_t device, bool deterministic) {
  return std::make_unique<CudaGpu>(cuda::open_gpu(device), deterministic);
}

std::string describe_gpu(std::int32_t device, bool json) {
  const cuda::Gpu gpu = cuda::open_gpu(device);
  return json ? json_line(as_json(gpu)) : in_words(gpu);
}

}  // namespace fpdt
