// The machine that runs the ranks: the CPU, or a GPU that they share. What the flags say becomes
// what makes the backend of each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fpdt/train/ranks.h"

#include "gpu.h"

namespace fpdt {

struct MachineFlags {
  std::string backend = "cpu";         // or "cuda"
  std::optional<std::int32_t> device;  // of cuda, as it counts them; absent: 0
  bool deterministic = false;          // of cuda: own kernels only
  std::int32_t threads = 0;            // of cpu, each rank; 0: its part of the cores
  std::string host_memory;             // that the machine can give; "": what it says is free
};

struct RankMachine {
  RankOptions ranks;           // all of them, here
  std::optional<OpenGpu> gpu;  // of --backend cuda
};

// What a flag says, a size over 0. InputError when it is none.
Bytes size_of(std::string_view flag, const std::string& text);

// InputError when a flag is the other backend's, or the GPU cannot be used.
RankMachine open_machine(const MachineFlags& flags);

}  // namespace fpdt
