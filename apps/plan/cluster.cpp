// A cluster file to start from: the text of one that exists, with the lines that were asked for
// changed. Everything else stays as it is, with its comments, which say where each number is from.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/base/printable.h"
#include "fpdt/base/units.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/io/json.h"

#include "common/command.h"
#include "common/share.h"
#include "plan/question.h"
#include "plan/verbs.h"

namespace fpdt {
namespace {

struct ClusterFlags {
  std::string action, like, name, device_memory, host_memory, out;
  std::optional<std::int64_t> nodes, devices_per_node, numa_nodes;
  bool overwrite = false;
};

constexpr std::int64_t kTextMax = 1 << 20;

// The lines of a cluster file.
class ClusterText {
 public:
  ClusterText(const std::string& text, std::string origin) : origin_(std::move(origin)) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  // Changes the value of a key of the cluster itself. A key that is missing comes after the name.
  void set(std::string_view key, const std::string& value) {
    if (change(fmt::format("{}: ", key), value)) return;
    const auto name = std::find_if(lines_.begin(), lines_.end(), [](const std::string& line) {
      return line.starts_with("name: ");
    });
    lines_.insert(name + 1, fmt::format("{}: {}", key, value));
  }
  // Changes a size of `host_outside`, if the file gives it.
  void set_host_outside(std::string_view key, Bytes size) {
    constexpr std::int64_t kMebi = 1 << 20;
    change(fmt::format("  {}: ", key), fmt::format("{}MiB", div_ceil(size.value, kMebi)));
  }
  // Names the file and says what it is made from, at its head and in its source.
  void introduce(const std::string& name) {
    for (std::string& line : lines_) {
      if (line.starts_with("name: ")) line = fmt::format("name: {}", name);
      if (line.starts_with("source: ")) {
        line.insert(std::string_view("source: ").size(), fmt::format("made from {}; ", origin_));
      }
    }
    lines_.insert(
        lines_.begin(),
        {fmt::format("# Made from {} by `fpdt-plan cluster new`. Rates, and memory outside the",
                     origin_),
         "# arena, are still those of that machine. Its comments say where each number is from:",
         "#"});
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }

 private:
  // Changes the value in the line that starts so. Returns whether there is one.
  bool change(const std::string& start, const std::string& value) {
    for (std::string& line : lines_) {
      if (!line.starts_with(start)) continue;
      const std::string before = line.substr(start.size());
      const std::string old = before.substr(0, before.find("  #"));
      if (old != value) line = fmt::format("{}{}  # {} in {}", start, value, old, origin_);
      return true;
    }
    return false;
  }

  std::string origin_;
  std::vector<std::string> lines_;
};

// Page descriptors and page tables grow with the memory of a node.
void resize_host(const ClusterSpec& origin, Bytes host_memory, ClusterText& text) {
  constexpr std::int64_t kDescriptors = 64;  // one 64th of memory
  const OutsideHost& outside = origin.host_outside;
  const Bytes descriptors{host_memory.value / kDescriptors};
  const Bytes services = outside.system - Bytes{origin.host_memory.value / kDescriptors};
  text.set_host_outside("system", descriptors + std::max(Bytes{0}, services));
  const double share =
      static_cast<double>(host_memory.value) / static_cast<double>(origin.host_memory.value);
  const double tables = static_cast<double>(outside.page_tables.value) * share;
  text.set_host_outside("page_tables", Bytes{static_cast<std::int64_t>(tables)});
}

// The rates of a smaller machine do not say how its devices and nodes reach others.
void note_missing_rates(const ClusterSpec& cluster) {
  const std::vector<std::string_view> missing = missing_rates(cluster);
  if (missing.empty()) return;
  std::string text;
  for (const std::string_view name : missing) {
    text += fmt::format("{}rates.{}{}", text.empty() ? "" : ", ", name,
                        name == "link"      ? " (what a device sends to the others of its node)"
                        : name == "network" ? " (what a node sends to the others)"
                                            : "");
  }
  say(fmt::format("note: seconds need rates that are missing: {}\n", text));
}

// Notes the values that the file takes over from another machine.
void note_taken_over(const ClusterSpec& cluster, const ClusterSpec& origin) {
  const double peak = cluster.rates.peak_flops * 1e-12;
  const std::int64_t devices = origin.devices_per_node;
  say(fmt::format(
      "note: from {}: {}{}; {} outside the arena of a device and {} of a node; change what "
      "differs, or let `fpdt-run bench` measure it\n",
      origin.name, peak > 0 ? fmt::format("{:.4g} TFLOP/s and all other rates", peak) : "no rates",
      peak > 0 && devices > 1 && devices != cluster.devices_per_node
          ? fmt::format(" (`link` is that of {} devices)", devices)
          : "",
      format_bytes(cluster.outside_bytes()), format_bytes(cluster.host_outside_bytes())));
}

// As YAML has it: in quotes unless it is a word.
std::string cluster_name(const ClusterFlags& flags, const std::string& origin) {
  std::string name = flags.name;
  if (name.empty()) {
    name = flags.out.empty() ? fmt::format("my-{}", origin)
                             : std::filesystem::path(flags.out).stem().string();
  }
  if (printable(name) != name) throw InputError("--name: expected a text of one line");
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto plain = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  };
  const bool word = letter(name.front()) && std::all_of(name.begin(), name.end(), plain) &&
                    name != "null" && name != "true" && name != "false";
  return word ? name : json_string(name);
}

int new_cluster(const ClusterFlags& flags) {
  if (!flags.out.empty() && !flags.overwrite && exists(flags.out)) {
    throw InputError(fmt::format("--out {}: exists; --overwrite replaces it", flags.out));
  }
  const std::string base = find_shared(Shelf::clusters, "--like", flags.like);
  const ClusterSpec origin = load_cluster(base);
  ClusterText text(read_file(base, kTextMax), origin.name);
  text.introduce(cluster_name(flags, origin.name));
  const auto count = [&](std::string_view key, const std::optional<std::int64_t>& value) {
    if (value) text.set(key, fmt::format("{}", *value));
  };
  count("nodes", flags.nodes);
  count("devices_per_node", flags.devices_per_node);
  count("numa_nodes", flags.numa_nodes);
  const auto size = [&](std::string_view key, const char* flag, const std::string& value) {
    if (value.empty()) return;
    static_cast<void>(parse_size(flag, value));
    text.set(key, value);
  };
  size("device_memory", "--device-memory", flags.device_memory);
  size("host_memory", "--host-memory", flags.host_memory);
  if (!flags.host_memory.empty()) {
    resize_host(origin, parse_size("--host-memory", flags.host_memory), text);
  }
  const std::string made = text.text();
  const ClusterSpec cluster = parse_cluster(made, flags.out.empty() ? "new cluster" : flags.out);
  note_taken_over(cluster, origin);
  note_missing_rates(cluster);
  if (flags.out.empty()) {
    print_result(made);
  } else {
    write_file_atomically(flags.out, made);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

Command declare_cluster(Options& options) {
  auto flags = std::make_shared<ClusterFlags>();
  options.value("ACTION", flags->action, "new: write a cluster file to start from")
      .required()
      .one_of({"new"});
  options.value("--like", flags->like, "Cluster to start from, a name or a file").required();
  options.value("--name", flags->name, "Name of the cluster; default: that of the file");
  options.value("--nodes", flags->nodes, "Number of nodes").integer(1);
  options.value("--devices-per-node", flags->devices_per_node, "GPUs of a node").integer(1);
  options.value("--numa-nodes", flags->numa_nodes, "Sockets of a node").integer(1);
  options.value("--device-memory", flags->device_memory, "Memory of a GPU, such as 48GiB");
  options.value("--host-memory", flags->host_memory, "Memory of a node, such as 512GiB");
  options.value("--out", flags->out, "File to write; default: standard output");
  options.flag("--overwrite", flags->overwrite, "Replace --out if it exists");
  return [flags] { return new_cluster(*flags); };
}

}  // namespace fpdt
