// On which NUMA node each rank of a job runs, and whether its host memory has room there.
//
// A rank with a GPU runs near it; its thread is pinned when it makes its backend (machine.cpp).
// Processes on CPUs are spread over the nodes of their host. Ranks that are threads of one process
// on a CPU stay where the system puts them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fpdt/runtime/numa.h"
#include "fpdt/runtime/world.h"

#include "common/command.h"

namespace fpdt {

// Where one rank runs.
struct RankHome {
  std::int64_t rank = 0, host = 0;
  std::int64_t nodes = 0;  // of the host; 0: unknown
  std::int32_t node = -1;  // of the rank; -1: none in particular
  Pinned pinned;           // to that node
  Bytes free;              // on that node, before the ranks take memory
  bool one_core = false;   // all its threads share one core
  bool operator==(const RankHome&) const = default;
};

// Together: the homes of all ranks of the job, the same everywhere. `gpu_nodes[i]` is the node near
// the GPU of the i-th rank here, -1 if unknown; it is empty on a CPU. There it pins the calling
// thread if the job has several processes, so call it before the ranks start. `root` is the folder
// that contains /proc and /sys.
std::vector<RankHome> settle(World& world, std::span<const std::int32_t> gpu_nodes,
                             const std::string& root = "");

// The homes on the first host in a line, and what the system refused; "" if it has a single node.
std::string homes_text(std::span<const RankHome> homes);
// Says what will be slow: nodes with too little free memory for their ranks, each of which takes
// `host_memory`, and processes on a single core.
std::vector<std::string> warnings(std::span<const RankHome> homes, Bytes host_memory);
// A list of the ranks that have a node.
Json json(std::span<const RankHome> homes);

}  // namespace fpdt
