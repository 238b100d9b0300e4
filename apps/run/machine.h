// The machine that runs the ranks of this process: the CPU, or GPUs. Its flags become what makes
// the backend of each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/train/ranks.h"

#include "common/flags.h"
#include "run/gpu.h"
#include "run/numa.h"

namespace fpdt {

struct MachineFlags {
  std::string backend = "cpu";  // or "cuda"
  std::string devices;          // cuda: numbers of GPUs, such as 0,1; "": all that CUDA lists
  bool deterministic = false;   // cuda: own kernels only
  std::int32_t threads = 0;     // cpu: of each rank; 0: its share of the cores
  std::string numa = "auto";    // or "off"
  std::string host_memory;      // that the machine can provide; "": what it reports as free
};

// `host_memory`: the help of that flag; "": that of a verb which runs a schedule.
void add_machine_flags(Options& options, MachineFlags& flags, const std::string& host_memory = "");

struct RankMachine {
  RankOptions ranks;               // all of them, here
  bool near = true;                // ranks are pinned to NUMA nodes
  std::vector<RankHome> homes;     // of the ranks of the job, where a verb asked (numa.h)
  std::unique_ptr<OpenGpus> gpus;  // with --backend cuda; outlives what `ranks` makes
};

// For `ranks` ranks in this process. Says so when ranks share GPUs. InputError when a flag belongs
// to the other backend, or the GPUs cannot be used.
RankMachine open_machine(const MachineFlags& flags, std::int64_t ranks);
// For the ranks of a process that stands at `place`: with several processes, one rank on own_gpu.
RankMachine open_machine(const MachineFlags& flags, const Place& place);

// With --backend cuda and several processes: the GPU of the one at `place`. Each of a host has its
// own, in order, unless it sees a single one. InputError when there are too few.
std::int32_t own_gpu(const MachineFlags& flags, const Place& place);

}  // namespace fpdt
