// Devices of CUDA as OpenGpus.
#include "run/gpu.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "fpdt/cuda/backend.h"
#include "fpdt/cuda/cudnn_properties.h"
#include "fpdt/cuda/gpu.h"
#include "fpdt/cuda/libraries.h"

#include "common/command.h"

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

// Absent where cuDNN cannot be used.
std::optional<std::int64_t> cudnn_version() {
  if (!cuda::why_no_cudnn().empty()) return {};
  return static_cast<std::int64_t>(cuda::cudnn().cudnnGetVersion());
}

std::string versions_of(const cuda::Gpu& gpu) {
  const std::optional<std::int64_t> cudnn = cudnn_version();
  return fmt::format("CUDA {} (driver for {}), cuBLASLt {}, {}", cuda_version_text(gpu.runtime),
                     cuda_version_text(gpu.driver), version_text(gpu.cublas),
                     cudnn ? fmt::format("cuDNN {}", version_text(*cudnn)) : "no cuDNN");
}

std::string in_words(const cuda::Gpu& gpu) {
  std::string text = fmt::format(
      "GPU {}: {}, compute capability {}.{}, {} multiprocessors, bus {}, NUMA node {}\n", gpu.index,
      gpu.name, gpu.architecture / 10, gpu.architecture % 10, gpu.multiprocessors, gpu.bus,
      gpu.numa_node < 0 ? "unknown" : std::to_string(gpu.numa_node));
  text += versions_of(gpu) + "\n";
  if (const std::string why = cuda::why_no_cudnn(); !why.empty()) {
    text += fmt::format("only the built-in attention kernels: {}\n", why);
  }
  text += fmt::format("memory: {}, {} free beside the context of this program\n",
                      format_bytes(gpu.memory), format_bytes(gpu.free));
  for (const cuda::Holder& one : cuda::holders(gpu.index)) {
    text += fmt::format("held by {} (process {}): {}\n", one.name, one.process,
                        format_bytes(one.bytes));
  }
  return text;
}

Json as_json(const cuda::Gpu& gpu) {
  const std::optional<std::int64_t> cudnn = cudnn_version();
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
      {"cudnn", cudnn ? Json(*cudnn) : Json()}};
  return {{"gpu", properties},
          {"holders", holders},
          {"cudnn_device_properties",
           cudnn ? Json::parse(cuda::json(cuda::device_properties(gpu.index))) : Json()}};
}

class CudaGpus final : public OpenGpus {
 public:
  CudaGpus(std::vector<std::int32_t> gpus, bool deterministic)
      : gpus_(std::move(gpus)), deterministic_(deterministic) {
    for (const std::int32_t gpu : gpus_) {
      if (shares.empty() || shares.back().gpu != gpu) shares.push_back({gpu, 0});
      ++shares.back().ranks;
    }
    std::vector<std::int32_t> team;
    for (const GpuShare& share : shares) team.push_back(share.gpu);
    cuda::require_team(team);
    for (const GpuShare& share : shares) {
      opened_ = cuda::open_gpu(share.gpu);
      numa_nodes.insert(numa_nodes.end(), static_cast<std::size_t>(share.ranks), opened_.numa_node);
    }
    name = opened_.name;
    memory = opened_.memory;
    workspace = Bytes{cuda::kScratchBytes + cuda::kMatmulWorkspaceBytes};
  }
  [[nodiscard]] std::vector<Bytes> used_memory() const override {
    std::vector<Bytes> used;
    for (const GpuShare& share : shares) {
      cuda::use_gpu(share.gpu);
      used.push_back(memory - cuda::free_device_memory());
    }
    return used;
  }
  [[nodiscard]] std::string versions() const override { return versions_of(opened_); }
  [[nodiscard]] std::string why_no_cudnn() const override { return cuda::why_no_cudnn(); }
  [[nodiscard]] std::string products() const override { return product_times_.json(); }
  std::unique_ptr<Backend> make_backend(Communicator& communicator) override {
    CudaOptions options;
    options.device = gpus_.at(index_of(communicator));
    options.deterministic = deterministic_;
    options.times = &product_times_;
    if (gpus_.size() > 1) options.peers = gpus_;
    return std::make_unique<CudaBackend>(communicator, options);
  }

 private:
  std::vector<std::int32_t> gpus_;  // by rank
  bool deterministic_;
  cuda::Gpu opened_;                  // the last one; all are of one model
  cuda::ProductTimes product_times_;  // of all ranks
};

}  // namespace

std::int32_t count_gpus() { return cuda::count_gpus(); }

std::unique_ptr<OpenGpus> open_gpus(const std::vector<std::int32_t>& gpus, bool deterministic) {
  return std::make_unique<CudaGpus>(gpus, deterministic);
}

std::string describe_gpus(std::optional<std::int32_t> gpu, bool json) {
  const std::int32_t count = gpu ? 1 : count_gpus();
  std::vector<std::string> texts;
  Json list = Json::array();
  for (std::int32_t i = 0; i < count; ++i) {
    const cuda::Gpu one = cuda::open_gpu(gpu.value_or(i));
    if (json) {
      list.push_back(as_json(one));
    } else {
      texts.push_back(in_words(one));
    }
  }
  if (!json) return fmt::format("{}", fmt::join(texts, "\n"));
  return json_line(count == 1 ? list.front() : Json{{"gpus", list}});
}

}  // namespace fpdt
