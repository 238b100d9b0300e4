// Homes are found by each process, gathered, and then read by process 0 only.
#include "run/numa.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {
namespace {

// The pinning that the system will grant to rank threads that pin themselves to the node.
Pinned rehearse(const NumaNode& node) {
  Pinned pinned;
  start_thread([&] { pinned = pin_to(node); }).join();
  return pinned;
}

std::vector<RankHome> homes_here(const Place& place, std::span<const std::int32_t> gpu_nodes,
                                 const std::string& root) {
  FPDT_ASSERT(gpu_nodes.empty() || gpu_nodes.size() == place.present.size());
  const std::vector<NumaNode> nodes = numa_nodes(root);
  const std::vector<std::int32_t> allowed = allowed_cpus();
  const bool several = place.processes > 1;
  std::vector<RankHome> homes;
  for (std::size_t i = 0; i < place.present.size(); ++i) {
    RankHome& home = homes.emplace_back();
    home.rank = place.present[i];
    home.host = place.node;
    home.nodes = std::ssize(nodes);
    home.one_core = several && is_one_core(nodes, allowed, root);
    const NumaNode* const node = !gpu_nodes.empty() ? find_node(nodes, gpu_nodes[i])
                                 : several ? home_node(nodes, allowed, place.local, place.locals)
                                           : nullptr;
    if (node == nullptr) continue;
    home.node = node->number;
    home.free = node->free;
    home.pinned = gpu_nodes.empty() ? pin_to(*node) : rehearse(*node);
  }
  return homes;
}

// Writes homes for the other processes of the same program.
std::string print(std::span<const RankHome> homes) {
  Json list = Json::array();
  for (const RankHome& home : homes) {
    list.push_back({home.rank, home.host, home.nodes, home.node, home.pinned.threads,
                    home.pinned.memory, home.free.value, home.one_core});
  }
  return list.dump();
}

void parse(std::string_view text, std::vector<RankHome>& homes) {
  for (const Json& one : Json::parse(text)) {
    homes.push_back({one[0], one[1], one[2], one[3], {one[4], one[5]}, Bytes{one[6]}, one[7]});
  }
}

// The ranks of each node of each host.
using Node = std::pair<std::int64_t, std::int32_t>;
std::map<Node, std::vector<const RankHome*>> by_node(std::span<const RankHome> homes) {
  std::map<Node, std::vector<const RankHome*>> nodes;
  for (const RankHome& home : homes) {
    if (home.node >= 0) nodes[{home.host, home.node}].push_back(&home);
  }
  return nodes;
}

bool on_several_hosts(std::span<const RankHome> homes) {
  return std::any_of(homes.begin(), homes.end(),
                     [](const RankHome& home) { return home.host > 0; });
}

// "rank 3", or "ranks 0-3,8-11".
std::string ranks_text(const std::vector<const RankHome*>& homes) {
  std::string text = homes.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < homes.size();) {
    std::size_t end = i + 1;
    while (end < homes.size() && homes[end]->rank == homes[end - 1]->rank + 1) ++end;
    text += fmt::format("{}{}", i == 0 ? "" : ",", homes[i]->rank);
    if (end - i > 1) text += fmt::format("-{}", homes[end - 1]->rank);
    i = end;
  }
  return text;
}

}  // namespace

std::vector<RankHome> settle(World& world, std::span<const std::int32_t> gpu_nodes,
                             const std::string& root) {
  const std::vector<RankHome> mine =
      agreed(world, [&] { return homes_here(world.place(), gpu_nodes, root); });
  std::vector<RankHome> all;
  for (const std::string& text : world.gather(print(mine))) parse(text, all);
  return all;
}

std::string homes_text(std::span<const RankHome> homes) {
  std::string text;
  bool threads = true;
  bool memory = true;
  for (const auto& [node, ranks] : by_node(homes)) {
    const RankHome& first = *ranks.front();
    if (first.host > 0 || first.nodes < 2) continue;
    text +=
        fmt::format("{}{} on node {}", text.empty() ? "" : ", ", ranks_text(ranks), node.second);
    for (const RankHome* home : ranks) {
      threads = threads && home->pinned.threads;
      memory = memory && home->pinned.memory;
    }
  }
  if (text.empty()) return "";
  // Pages follow threads that are pinned, whatever the policy is.
  const char* const refused = threads  ? ""
                              : memory ? "; threads stay where the system puts them"
                                       : "; the system pins neither all threads nor all memory";
  return fmt::format("NUMA{}: {}{}", on_several_hosts(homes) ? " nodes of the first host" : "",
                     text, refused);
}

std::vector<std::string> warnings(std::span<const RankHome> homes, Bytes host_memory) {
  std::vector<std::string> found;
  const bool hosts = on_several_hosts(homes);
  for (const auto& [node, ranks] : by_node(homes)) {
    const RankHome& first = *ranks.front();
    const Bytes need = std::ssize(ranks) * host_memory;
    if (first.nodes < 2 || need <= first.free) continue;
    found.push_back(fmt::format(
        "{}NUMA node {}: {} {} {} of host memory, and {} are free there: the rest lies on other "
        "nodes, which is slower",
        hosts ? fmt::format("host {}, ", node.first) : "", node.second, ranks_text(ranks),
        ranks.size() == 1 ? "takes" : "take", format_bytes(need), format_bytes(first.free)));
  }
  const auto bound =
      std::count_if(homes.begin(), homes.end(), [](const RankHome& home) { return home.one_core; });
  if (bound > 0) {
    found.push_back(
        fmt::format("{} of {} processes may use a single core of their host: mpirun "
                    "binds one or two processes so; give it --bind-to none",
                    bound, homes.size()));
  }
  return found;
}

Json json(std::span<const RankHome> homes) {
  Json list = Json::array();
  for (const RankHome& home : homes) {
    if (home.node < 0) continue;
    list.push_back({{"rank", home.rank},
                    {"host", home.host},
                    {"node", home.node},
                    {"threads_pinned", home.pinned.threads},
                    {"memory_pinned", home.pinned.memory},
                    {"free_bytes", home.free.value}});
  }
  return list;
}

}  // namespace fpdt
