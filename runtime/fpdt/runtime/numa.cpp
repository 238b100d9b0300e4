// Reads sysfs, and asks the kernel directly: libnuma would be a dependency for three calls.
#include "fpdt/runtime/numa.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// More than any kernel is built for.
constexpr std::int32_t kCpusEnd = 1 << 16;
constexpr std::int32_t kNodesEnd = 1 << 10;

constexpr std::int32_t kBits = 64;  // of a word of a mask

// Modes of <linux/mempolicy.h>, which comes with other packages.
constexpr int kDefault = 0;
constexpr int kPreferred = 1;

using Numbers = std::vector<std::int32_t>;
using NodeMask = std::array<std::uint64_t, kNodesEnd / kBits>;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The rest of the line of `text` that begins with `key`, without blanks before it.
std::optional<std::string> find_line(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t start = line.find_first_not_of(" \t", key.size());
    return start == std::string::npos ? "" : line.substr(start);
  }
  return std::nullopt;
}

// Zero where there is no such line "Node 0 MemFree:  12 kB".
Bytes node_bytes(const std::string& meminfo, std::int32_t node, std::string_view key) {
  const std::string text =
      find_line(meminfo, fmt::format("Node {} {}:", node, key)).value_or(std::string());
  constexpr std::int64_t kMost = std::int64_t{1} << 50;  // kibibytes
  std::int64_t kibi = 0;
  std::from_chars(text.data(), text.data() + text.size(), kibi);
  return Bytes{std::clamp<std::int64_t>(kibi, 0, kMost) * 1024};
}

bool contains(std::span<const std::int32_t> all, std::int32_t number) {
  return std::binary_search(all.begin(), all.end(), number);
}

bool includes(std::span<const std::int32_t> all, std::span<const std::int32_t> part) {
  return std::includes(all.begin(), all.end(), part.begin(), part.end());
}

Numbers all_cpus(std::span<const NumaNode> nodes) {
  Numbers all;
  for (const NumaNode& node : nodes) all.insert(all.end(), node.cpus.begin(), node.cpus.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

template <class Words>
void set_bits(Words& words, std::span<const std::int32_t> numbers) {
  for (const std::int32_t number : numbers) {
    words[static_cast<std::size_t>(number / kBits)] |= std::uint64_t{1} << (number % kBits);
  }
}

bool pin_threads(const NumaNode& node) {
  const Numbers allowed = allowed_cpus();
  Numbers cpus;
  std::set_intersection(allowed.begin(), allowed.end(), node.cpus.begin(), node.cpus.end(),
                        std::back_inserter(cpus));
  if (cpus.empty()) return false;
  std::vector<std::uint64_t> words(kCpusEnd / kBits);
  set_bits(words, cpus);
  return ::syscall(SYS_sched_setaffinity, 0, words.size() * sizeof words[0], words.data()) == 0;
}

bool pin_memory(const NumaNode& node) {
  int mode = kDefault;
  if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) != 0) return false;
  if (mode != kDefault || node.memory.value == 0) return false;
  // Preferred, not bound: beyond the node's last page a bound process is killed, a preferring one
  // is served by the next node. The kernel takes one bit less than it is told.
  NodeMask words{};
  set_bits(words, std::array{node.number});
  return ::syscall(SYS_set_mempolicy, kPreferred, words.data(), kNodesEnd + 1) == 0;
}

}  // namespace

std::optional<Numbers> parse_numbers(std::string_view list, std::int32_t end) {
  Numbers numbers;
  const char* at = list.data();
  const char* const stop = at + list.size();
  const auto number = [&]() -> std::optional<std::int32_t> {
    std::int32_t value = -1;
    const auto [rest, error] = std::from_chars(at, stop, value);
    at = rest;
    const std::int32_t least = numbers.empty() ? 0 : numbers.back() + 1;
    if (error != std::errc() || value < least || value >= end) return std::nullopt;
    return value;
  };
  while (at != stop) {
    if (!numbers.empty() && *at++ != ',') return std::nullopt;
    const std::optional<std::int32_t> first = number();
    if (!first) return std::nullopt;
    numbers.push_back(*first);
    if (at == stop || *at != '-') continue;
    ++at;
    const std::optional<std::int32_t> last = number();
    if (!last) return std::nullopt;
    while (numbers.back() < *last) numbers.push_back(numbers.back() + 1);
  }
  return numbers;
}

std::vector<NumaNode> numa_nodes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node/";
  const auto online = parse_numbers(first_line(folder + "online"), kNodesEnd);
  if (!online) return {};
  const auto mems = parse_numbers(
      find_line(contents(root + "/proc/self/status"), "Mems_allowed_list:").value_or(""),
      kNodesEnd);
  const bool all_mems = !mems || mems->empty();  // the system does not tell
  std::vector<NumaNode> nodes;
  for (const std::int32_t number : *online) {
    const std::string path = fmt::format("{}node{}/", folder, number);
    auto cpus = parse_numbers(first_line(path + "cpulist"), kCpusEnd);
    if (!cpus) return {};
    NumaNode& node = nodes.emplace_back();
    node.number = number;
    node.cpus = std::move(*cpus);
    node.forbidden = !all_mems && !contains(*mems, number);
    if (node.forbidden) continue;
    const std::string meminfo = contents(path + "meminfo");
    const auto bytes = [&](std::string_view key) { return node_bytes(meminfo, number, key); };
    node.memory = bytes("MemTotal");
    node.free = bytes("MemFree");
    node.cache = bytes("Active(file)") + bytes("Inactive(file)") + bytes("SReclaimable");
  }
  return nodes;
}

const NumaNode* find_node(std::span<const NumaNode> nodes, std::int32_t number) {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [number](const NumaNode& node) { return node.number == number; });
  return found == nodes.end() ? nullptr : &*found;
}

Numbers allowed_cpus() {
  std::vector<std::uint64_t> words(kCpusEnd / kBits);
  const long bytes =
      ::syscall(SYS_sched_getaffinity, 0, words.size() * sizeof words[0], words.data());
  Numbers cpus;
  for (std::int32_t cpu = 0; cpu < 8 * bytes; ++cpu) {
    if ((words[static_cast<std::size_t>(cpu / kBits)] >> (cpu % kBits) & 1) != 0) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

bool is_one_core(std::span<const NumaNode> nodes, std::span<const std::int32_t> allowed,
                 const std::string& root) {
  if (allowed.empty()) return false;
  const std::string path =
      fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, allowed.front());
  const Numbers core =
      parse_numbers(first_line(path + "thread_siblings_list"), kCpusEnd).value_or(Numbers());
  const bool one = allowed.size() == 1 || includes(core, allowed);
  const Numbers all = all_cpus(nodes);
  return one && std::any_of(all.begin(), all.end(), [&](std::int32_t cpu) {
           return !contains(core, cpu) && !contains(allowed, cpu);
         });
}

const NumaNode* home_node(std::span<const NumaNode> nodes, std::span<const std::int32_t> allowed,
                          std::int64_t local, std::int64_t locals) {
  if (allowed.empty()) return nullptr;
  if (!includes(allowed, all_cpus(nodes))) {
    const auto home = std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& node) {
      return includes(node.cpus, allowed);
    });
    return home == nodes.end() ? nullptr : &*home;
  }
  std::vector<const NumaNode*> whole;
  for (const NumaNode& node : nodes) {
    if (!node.cpus.empty() && node.memory.value > 0) whole.push_back(&node);
  }
  if (whole.empty()) return nullptr;
  return whole[static_cast<std::size_t>(mul(local, std::ssize(whole)) / locals)];
}

Pinned pin_to(const NumaNode& node) { return {pin_threads(node), pin_memory(node)}; }

}  // namespace fpdt
