// The NUMA nodes of this machine, and what keeps a thread and its memory on one of them.
//
// Linux places a page when it is first touched: on the node of the thread that touches it, or as
// that thread's memory policy says. When the node is full, the page goes to another one. Once a
// driver has pinned a page it never moves. So a thread that shall have its arenas near must be
// pinned before it touches them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct NumaNode {
  std::int32_t number = 0;
  std::vector<std::int32_t> cpus;  // that are online, ascending; none: only memory
  bool forbidden = false;          // to take memory from it: cpuset.mems lacks the node
  // All of its memory, what is free, and what page cache holds. Zero if forbidden.
  Bytes memory, free, cache;
};

// The nodes that are online, by number. Empty where the system does not tell, or tells nonsense.
// `root` is the folder that contains /proc and /sys; tests pass their own.
std::vector<NumaNode> numa_nodes(const std::string& root = "");

// Null if there is no node of that number.
const NumaNode* find_node(std::span<const NumaNode> nodes, std::int32_t number);

// The numbers in a list of the kernel, such as "0-3,8": ascending, each below `end`. Nothing for
// any other text.
std::optional<std::vector<std::int32_t>> parse_numbers(std::string_view list, std::int32_t end);

// CPUs on which the calling thread may run, ascending; empty where the system does not tell.
std::vector<std::int32_t> allowed_cpus();

// Whether they are CPUs of a single core, while the machine has others.
bool is_one_core(std::span<const NumaNode> nodes, std::span<const std::int32_t> allowed,
                 const std::string& root = "");

// Where process `local` of the `locals` on this host runs. A process that may not use all CPUs was
// bound by whoever started it, and stays on the node of its CPUs. Others are spread evenly over the
// nodes that have CPUs and memory, neighbours together. Null: on no single node.
const NumaNode* home_node(std::span<const NumaNode> nodes, std::span<const std::int32_t> allowed,
                          std::int64_t local, std::int64_t locals);

// The pinning that the system granted.
struct Pinned {
  bool threads = false;  // the thread stays on the node's CPUs
  bool memory = false;   // the pages that it touches first come from the node while it has any
  bool operator==(const Pinned&) const = default;
};

// Pins the calling thread, and with it all threads that it starts from now on. It never gains a CPU
// that it might not use before, and keeps a memory policy that somebody chose (numactl). Containers
// may refuse both calls, and their own defaults remain: with `threads` alone, pages still come from
// the node, because its threads touch them first.
Pinned pin_to(const NumaNode& node);

}  // namespace fpdt
