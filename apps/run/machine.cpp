// Flags to a backend.
#include "run/machine.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/numa.h"

#include "common/command.h"

namespace fpdt {
namespace {

// More than any machine has cores.
constexpr std::int64_t kThreadsMax = 1024;
// A rank may wait until the work that others queued on a shared GPU is done.
constexpr std::chrono::hours kDeadlineOnGpu{24};

void require_sensible(const MachineFlags& flags) {
  const bool cuda = flags.backend == "cuda";
  if (cuda && flags.threads > 0) {
    throw InputError("--threads is for --backend cpu: on a GPU each rank has one thread");
  }
  if (!cuda && (!flags.devices.empty() || flags.deterministic)) {
    throw InputError(fmt::format("{} needs --backend cuda",
                                 flags.devices.empty() ? "--deterministic" : "--device"));
  }
}

// The numbers in the value of --device, in its order.
std::vector<std::int32_t> listed_gpus(std::string_view list) {
  std::vector<std::int32_t> gpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  for (;; ++at) {
    std::int32_t gpu = -1;
    const auto [rest, error] = std::from_chars(at, end, gpu);
    const bool again = std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
    if (error != std::errc() || gpu < 0 || again || (rest != end && *rest != ',')) {
      throw InputError(fmt::format(
          "--device: expected different numbers of GPUs, such as 0 or 0,1, found \"{}\"", list));
    }
    gpus.push_back(gpu);
    at = rest;
    if (at == end) return gpus;
  }
}

// The GPUs that ranks may run on.
std::vector<std::int32_t> chosen_gpus(const std::string& list) {
  const std::vector<std::int32_t> chosen =
      list.empty() ? std::vector<std::int32_t>() : listed_gpus(list);
  const std::int32_t count = count_gpus();
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (list.empty()) return all;
  for (const std::int32_t gpu : chosen) {
    if (gpu < count) continue;
    throw InputError(fmt::format(
        "--device {}: there is no GPU {}; {} found, counted from 0: give --device {}, "
        "or leave it out to use as many as there are ranks",
        list, gpu, count == 1 ? "one was" : fmt::format("{} were", count), fmt::join(all, ",")));
  }
  return chosen;
}

// The GPU of each rank: one each where there are enough, else dealt out in order and as evenly as
// possible.
std::vector<std::int32_t> deal(const std::vector<std::int32_t>& gpus, std::int64_t ranks) {
  const std::int64_t used = std::min<std::int64_t>(ranks, std::ssize(gpus));
  std::vector<std::int32_t> dealt;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    dealt.push_back(gpus[static_cast<std::size_t>(rank * used / ranks)]);
  }
  return dealt;
}

std::string shares_text(const OpenGpus& gpus, std::int64_t ranks) {
  std::string text;
  for (const GpuShare& share : gpus.shares) {
    text += fmt::format("{}{} on GPU {}", text.empty() ? "" : ", ", share.ranks, share.gpu);
  }
  return fmt::format("{} ranks on {} {}: {}\n", ranks, gpus.shares.size(),
                     gpus.shares.size() == 1 ? "GPU" : "GPUs", text);
}

// Pins the calling thread to a NUMA node, if the machine has it.
void pin_near(std::int32_t number) {
  const std::vector<NumaNode> nodes = numa_nodes();
  if (const NumaNode* node = find_node(nodes, number)) pin_to(*node);
}

// `gpus_of_ranks` gives the GPUs of the ranks of this process.
template <class GpusOfRanks>
RankMachine open(const MachineFlags& flags, GpusOfRanks&& gpus_of_ranks) {
  require_sensible(flags);
  if (!flags.host_memory.empty())
    declare_host_memory(parse_size("--host-memory", flags.host_memory));
  RankMachine machine;
  machine.near = flags.numa == "auto";
  if (flags.backend == "cpu") {
    machine.ranks.threads = flags.threads;
    return machine;
  }
  const std::vector<std::int32_t> dealt = gpus_of_ranks();
  machine.gpus = open_gpus(dealt, flags.deterministic);
  const std::int64_t ranks = std::ssize(dealt);
  if (std::ssize(machine.gpus->shares) < ranks) say(shares_text(*machine.gpus, ranks));
  machine.ranks.make_backend = [gpus = machine.gpus.get(),
                                near = machine.near](Communicator& communicator) {
    if (near) pin_near(gpus->numa_nodes.at(gpus->index_of(communicator)));
    return gpus->make_backend(communicator);
  };
  machine.ranks.deadline = kDeadlineOnGpu;
  return machine;
}

}  // namespace

void add_machine_flags(Options& options, MachineFlags& flags, const std::string& host_memory) {
  options.value("--backend", flags.backend, "cpu, or cuda: as many GPUs as there are ranks")
      .shows_default()
      .one_of({"cpu", "cuda"});
  options.value("--device", flags.devices,
                "cuda only: GPUs to deal the ranks out to, such as 0 or 0,1; default: all");
  options.flag("--deterministic", flags.deterministic,
               "cuda only: the same bits on every run, by avoiding library kernels that add in no "
               "fixed order");
  options
      .value("--threads", flags.threads,
             "cpu only: threads of each rank; default: its share of the cores")
      .integer(1, kThreadsMax);
  options
      .value("--numa", flags.numa,
             "auto: each rank on the NUMA node of its GPU, and processes on CPUs spread over all "
             "nodes; off: wherever the system puts them")
      .shows_default()
      .one_of({"auto", "off"});
  options.value("--host-memory", flags.host_memory,
                !host_memory.empty()
                    ? host_memory
                    : "Memory that this machine can provide, such as 115GiB; default: what it "
                      "reports as free, which is too little on a virtual machine that grows with "
                      "its use");
}

RankMachine open_machine(const MachineFlags& flags, std::int64_t ranks) {
  return open(flags, [&] { return deal(chosen_gpus(flags.devices), ranks); });
}

RankMachine open_machine(const MachineFlags& flags, const Place& place) {
  if (place.processes == 1) return open_machine(flags, std::ssize(place.present));
  return open(flags, [&] { return std::vector{own_gpu(flags, place)}; });
}

std::int32_t own_gpu(const MachineFlags& flags, const Place& place) {
  const std::vector<std::int32_t> gpus = chosen_gpus(flags.devices);
  if (gpus.size() == 1) return gpus.front();
  if (std::ssize(gpus) < place.locals) {
    throw InputError(fmt::format(
        "{} processes on this host, but {} GPUs: each needs its own; start as many as there are "
        "GPUs",
        place.locals, gpus.size()));
  }
  return gpus[static_cast<std::size_t>(place.local)];
}

}  // namespace fpdt
