// Asks the driver for the devices' properties and for the processes that use them.
#include "fpdt/cuda/gpu.h"

#include <array>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <fstream>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/cuda/libraries.h"
#include "fpdt/cuda/status.h"

namespace fpdt::cuda {
namespace {

constexpr std::int32_t kLeastArchitecture = 80;
// The first branch of drivers that runs programs of the toolkit's major version (NVIDIA's table of
// minor version compatibility), and knows what this program asks: 535 has the NUMA node of a GPU.
constexpr std::int32_t kLeastDriver = CUDART_VERSION >= 13000 ? 580 : 535;

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "an attribute of the GPU");
  return value;
}

cudaDeviceProp properties_of(std::int32_t index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "properties of the GPU");
  return properties;
}

// PCI address.
std::string bus_of(std::int32_t index) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index), "the GPU's bus");
  return bus.data();
}

void require_device(std::int32_t index) {
  const std::int32_t count = count_gpus();
  if (index >= 0 && index < count) return;
  throw InputError(fmt::format("GPU {}: {}, counted from 0", index,
                               count == 1 ? "there is one" : fmt::format("there are {}", count)));
}

void require_one_model(std::span<const std::int32_t> devices) {
  const std::string model = properties_of(devices.front()).name;
  std::string equal;  // as in --device
  std::string other;
  for (const std::int32_t device : devices) {
    const std::string name = properties_of(device).name;
    if (name == model) {
      equal += fmt::format("{}{}", equal.empty() ? "" : ",", device);
    } else if (other.empty()) {
      other = fmt::format("GPU {} is a {}", device, name);
    }
  }
  if (other.empty()) return;
  throw InputError(
      fmt::format("{}, but GPU {} is a {}: the ranks of a schedule need GPUs of one model; give "
                  "--device {}",
                  other, devices.front(), model, equal));
}

void require_access(std::int32_t reader, std::int32_t owner) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, reader, owner), "the access of a GPU to another");
  if (can != 0) return;
  throw InputError(fmt::format(
      "GPU {} cannot read the memory of GPU {} (nvidia-smi topo -p2p r lists which can), but the "
      "ranks of one process read each other's: run one process for each GPU, with torchrun or "
      "mpirun and --communicator nccl, or let all ranks share one with --device {}",
      reader, owner, reader));
}

void require_architecture(const Gpu& gpu) {
  if (gpu.architecture < kLeastArchitecture) {
    throw InputError(
        fmt::format("GPU {} is a {} of compute capability {}.{}; the kernels need {}.{} or newer "
                    "(A100 and later)",
                    gpu.index, gpu.name, gpu.architecture / 10, gpu.architecture % 10,
                    kLeastArchitecture / 10, kLeastArchitecture % 10));
  }
}

// Version 2 of nvmlProcessInfo_t.
struct NvmlProcess {
  unsigned process;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

// The part of NVML that lists who holds memory. Not every toolkit has its header.
struct Nvml {
  Library library{{"NVML", "libnvidia-ml.so.1", "of the driver", ""}};
  int (*start)() = library.find("nvmlInit_v2");
  int (*stop)() = library.find("nvmlShutdown");
  int (*device_at)(const char*, void**) = library.find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*list)(void*, unsigned*,
              NvmlProcess*) = library.find("nvmlDeviceGetComputeRunningProcesses_v3");
};

std::vector<Holder> list_holders(const Nvml& nvml, const std::string& bus) {
  constexpr unsigned long long kUnknown = ~0ULL;
  void* device = nullptr;
  std::array<NvmlProcess, 64> found{};
  auto count = static_cast<unsigned>(found.size());
  if (nvml.device_at(bus.c_str(), &device) != 0 || nvml.list(device, &count, found.data()) != 0) {
    return {};
  }
  std::vector<Holder> holders;
  for (unsigned i = 0; i < count; ++i) {
    const NvmlProcess& one = found[i];
    if (one.bytes == kUnknown) continue;
    std::ifstream file(fmt::format("/proc/{}/comm", one.process));
    std::string name = "in another container";
    std::getline(file, name);
    holders.push_back({one.process, name, Bytes{static_cast<std::int64_t>(one.bytes)}});
  }
  return holders;
}

}  // namespace

std::int32_t count_gpus() {
  // Gives each lane of each rank its own queue; works only before the first call of CUDA. By
  // default streams share eight queues, and wait behind each other's work.
  static_cast<void>(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    throw InputError(
        driver == 0
            ? "no NVIDIA driver: --backend cuda needs a GPU and its driver (nvidia-smi lists "
              "them); "
              "--backend cpu runs anywhere"
            : fmt::format("the NVIDIA driver supports CUDA {}.{}, but this program was built with "
                          "{}.{}, which needs driver {} or newer (nvidia-smi shows the driver's "
                          "version): install that, or build with a toolkit of CUDA {}",
                          driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                          CUDART_VERSION % 1000 / 10, kLeastDriver, driver / 1000));
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw InputError(
        "no GPU: the driver lists none (CUDA_VISIBLE_DEVICES hides those it does not "
        "name); --backend cpu runs anywhere");
  }
  check(status, "the list of GPUs");
  return count;
}

Gpu open_gpu(std::int32_t index) {
  require_device(index);
  Gpu gpu;
  gpu.index = index;
  const cudaDeviceProp properties = properties_of(index);
  gpu.name = properties.name;
  gpu.architecture = properties.major * 10 + properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.bus = bus_of(index);
  gpu.numa_node = attribute(cudaDevAttrHostNumaId, index);
  check(cudaDriverGetVersion(&gpu.driver), "the driver's version");
  check(cudaRuntimeGetVersion(&gpu.runtime), "the runtime's version");
  gpu.cublas = static_cast<std::int64_t>(cublaslt().cublasLtGetVersion());
  require_architecture(gpu);
  check(cudaSetDevice(index), fmt::format("GPU {}", index));
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  gpu.memory = Bytes{static_cast<std::int64_t>(total)};
  gpu.free = Bytes{static_cast<std::int64_t>(free)};
  return gpu;
}

void use_gpu(std::int32_t index) { check(cudaSetDevice(index), "the choice of a GPU"); }

void require_team(std::span<const std::int32_t> devices) {
  require_one_model(devices);
  for (const std::int32_t reader : devices) {
    for (const std::int32_t owner : devices) {
      if (reader != owner) require_access(reader, owner);
    }
  }
}

void enable_peers(std::int32_t index, std::span<const std::int32_t> peers) {
  use_gpu(index);
  for (const std::int32_t peer : peers) {
    if (peer == index) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());  // by another rank on this device
      continue;
    }
    check(status, fmt::format("access of GPU {} to the memory of GPU {}", index, peer));
  }
}

std::vector<Holder> holders(std::int32_t index) {
  try {
    const Nvml nvml;
    if (nvml.start() != 0) return {};
    std::vector<Holder> found = list_holders(nvml, bus_of(index));
    nvml.stop();
    return found;
  } catch (const InputError&) {
    return {};  // no NVML, or an NVML without these functions
  }
}

std::string why_no_cudnn() {
  try {
    static_cast<void>(cudnn());
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

Bytes free_device_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  return Bytes{static_cast<std::int64_t>(free)};
}

}  // namespace fpdt::cuda
