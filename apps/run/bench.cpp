// fpdt-run bench: measures this machine and writes it down as a cluster.
#include "fpdt/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/report/axis.h"
#include "fpdt/runtime/arena.h"

#include "common/command.h"
#include "common/progress.h"
#include "common/share.h"
#include "run/job.h"
#include "run/machine.h"
#include "run/verbs.h"

namespace fpdt {
namespace {

constexpr std::int64_t kRanksMax = 64;          // which a bench runs all on this machine
constexpr std::int64_t kDeadlineSeconds = 300;  // for each wait for another process

struct BenchFlags {
  std::string out;  // the cluster file
  std::string name;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;  // over which a launcher has spread them
  RankFlags processes;
  MachineFlags backend;
  std::string storage = "bf16";
  // The device memory of one rank. "": its share of half of the machine's memory, or of the GPU's.
  // The file's host memory is `backend.host_memory`. "": the other half, or with a GPU nine tenths
  // of what is free.
  std::string device_memory;
  double peak_flops = 0;  // of the data sheet; 0: of the fastest product
  std::string declared;   // cluster file whose rates stand until they are measured
  bool brief = false;
  bool quick = false;
  bool json = false;
};

Bytes machine_memory() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const std::int64_t size = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) {
    throw InputError(
        "the memory of this machine is unknown: give --device-memory and --host-memory");
  }
  return Bytes{mul(pages, size)};
}

// The value of a flag, or `otherwise` in whole MiB.
Bytes memory_of(const std::string& text, std::string_view flag,
                const std::function<Bytes()>& otherwise) {
  if (text.empty()) {
    constexpr std::int64_t kMebibyte = 1 << 20;
    return Bytes{otherwise().value / kMebibyte * kMebibyte};
  }
  return parse_size(flag, text);
}

// The processor's name in Linux; "unknown processor" elsewhere.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::int64_t most_ranks(const OpenGpus& gpus) {
  std::int64_t most = 1;
  for (const GpuShare& share : gpus.shares) most = std::max(most, share.ranks);
  return most;
}

// The cluster without its rates.
ClusterSpec cluster_of(const BenchFlags& flags, const OpenGpus* gpus) {
  ClusterSpec cluster;
  cluster.name = flags.name.empty() ? (gpus != nullptr ? "gpu-local" : "cpu-local") : flags.name;
  cluster.nodes = flags.nodes;
  cluster.devices_per_node = flags.ranks / flags.nodes;
  // On a CPU half of the memory plays the devices, half the host.
  cluster.device_memory = memory_of(flags.device_memory, "--device-memory", [&] {
    return gpus != nullptr ? Bytes{gpus->memory.value / most_ranks(*gpus)}
                           : Bytes{machine_memory().value / 2 / cluster.devices_per_node};
  });
  cluster.host_memory = memory_of(flags.backend.host_memory, "--host-memory", [&] {
    return Bytes{gpus != nullptr ? memory_limit().bytes.value / 10 * 9
                                 : machine_memory().value / 2};
  });
  const std::string quick = flags.quick ? " --quick" : flags.brief ? " --short" : "";
  const std::string ranks =
      fmt::format("{} {}{}{}", flags.ranks, flags.ranks == 1 ? "rank" : "ranks",
                  flags.processes.communicator == "thread"
                      ? ""
                      : fmt::format(" in processes over {}", flags.processes.communicator),
                  flags.nodes == 1 ? "" : fmt::format(" on {} hosts", flags.nodes));
  if (gpus != nullptr) {
    constexpr std::int64_t kRowsOfTiles = 128;  // of a tile, on GPUs
    cluster.row_multiple = kRowsOfTiles;
    if (!flags.backend.deterministic && gpus->why_no_cudnn().empty()) {
      cluster.attention = AttentionKernels::cudnn;
    }
    const std::size_t count = gpus->shares.size();
    cluster.source = fmt::format("measured by fpdt-run bench --backend cuda{}{}: {}{}, {}, {}, {}",
                                 flags.backend.deterministic ? " --deterministic" : "", quick,
                                 count == 1 ? "" : fmt::format("{} x ", count), gpus->name,
                                 gpus->versions(), ranks, flags.storage);
    return cluster;
  }
  const auto cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t threads = flags.backend.threads > 0
                                   ? flags.backend.threads
                                   : std::max<std::int64_t>(1, cores / cluster.devices_per_node);
  cluster.source = fmt::format("measured by fpdt-run bench{}: {}, {} cores, {} of {} threads, {}",
                               quick, processor(), cores, ranks, threads, flags.storage);
  return cluster;
}

BenchOptions options_of(const BenchFlags& flags, const RankMachine& machine,
                        const ClusterSpec& cluster) {
  BenchOptions options;
  options.ranks = flags.ranks;
  options.nodes = flags.nodes;
  options.machine.make_backend = machine.ranks.make_backend;
  options.machine.threads = machine.ranks.threads;
  options.machine.deadline = machine.ranks.deadline;
  if (machine.gpus) {
    options.machine.used_memory = [gpus = machine.gpus.get()] {
      Bytes sum;
      for (const Bytes used : gpus->used_memory()) sum += used;
      return sum;
    };
    options.machine.devices = std::ssize(machine.gpus->shares);
    options.machine.workspace = machine.gpus->workspace;
  }
  const BenchLength length = flags.quick   ? BenchLength::quick
                             : flags.brief ? BenchLength::brief
                                           : BenchLength::full;
  options.extent = machine.gpus ? gpu_extent(length) : cpu_extent(length);
  options.storage = flags.storage == "f32" ? Dtype::f32 : Dtype::bf16;
  options.attention = cluster.attention;
  options.largest_cudnn_head = cluster.largest_cudnn_head;
  options.peak_flops = flags.peak_flops;
  return options;
}

std::string time_text(double seconds) { return format_nanoseconds(std::llround(seconds * 1e9)); }

std::string speed_text(const Measurement& one) {
  const double flops = one.flops / one.seconds.typical;
  if (flops >= 1e12) return fmt::format("{:.1f} TFLOP/s", flops / 1e12);
  if (flops > 0) return fmt::format("{:.1f} GFLOP/s", flops / 1e9);
  return fmt::format("{:.2f} GB/s", static_cast<double>(one.bytes) / one.seconds.typical / 1e9);
}

std::string table(const BenchResult& result) {
  std::string text = fmt::format("{:<20} {:<34} {:>10} {:>10} {:>10}  {:>15} {:>8}\n", "op",
                                 "sizes", "typical", "fastest", "slowest", "speed", "ceiling");
  for (const Measurement& one : result.measurements) {
    const double share = share_of_ceiling(result, one);
    text += fmt::format("{:<20} {:<34} {:>10} {:>10} {:>10}  {:>15} {:>8}\n", one.kind, one.what,
                        time_text(one.seconds.typical), time_text(one.seconds.low),
                        time_text(one.seconds.high), speed_text(one),
                        share > 0 ? fmt::format("{:.0f} %", 100 * share) : "-");
  }
  const Interference& pace = result.rates.interference;
  text += "\npace beside other work, 1 = as fast as alone\n";
  for (const auto& [what, rate] :
       {std::pair("compute beside copies", pace.compute_beside_copy),
        std::pair("copies beside compute", pace.copy_beside_compute),
        std::pair("h2d beside d2h", pace.h2d_beside_d2h),
        std::pair("d2h beside h2d", pace.d2h_beside_h2d),
        std::pair("compute beside collectives", pace.compute_beside_collective),
        std::pair("collectives beside compute", pace.collective_beside_compute),
        std::pair("copies beside collectives", pace.copy_beside_collective),
        std::pair("collectives beside copies", pace.collective_beside_copy)}) {
    text +=
        fmt::format("{:<30} {:.2f}  ({:.2f} to {:.2f})\n", what, rate.typical, rate.low, rate.high);
  }
  if (result.outside != OutsideArena{}) {
    text += fmt::format(
        "\ndevice memory outside the arenas: context {}; of each rank libraries {}, workspace {}\n",
        format_bytes(result.outside.context), format_bytes(result.outside.libraries),
        format_bytes(result.outside.workspace));
  }
  return text;
}

Json json(const BenchResult& result, const ClusterSpec& cluster, const std::string& out,
          const OpenGpus* gpus) {
  Json measurements = Json::array();
  for (const Measurement& one : result.measurements) {
    const double share = share_of_ceiling(result, one);
    measurements.push_back({{"op", one.kind},
                            {"sizes", one.what},
                            {"seconds", one.seconds.typical},
                            {"fastest", one.seconds.low},
                            {"slowest", one.seconds.high},
                            {"flops", one.flops},
                            {"bytes", one.bytes},
                            {"share_of_ceiling", share > 0 ? Json(share) : Json()}});
  }
  const Json outside{{"context", result.outside.context.value},
                     {"libraries", result.outside.libraries.value},
                     {"workspace", result.outside.workspace.value}};
  return {{"wrote", out},
          {"source", cluster.source},
          {"peak_flops", result.rates.peak_flops},
          {"device_bandwidth", result.rates.device_bandwidth.typical},
          {"outside", outside},
          {"products", gpus != nullptr ? Json::parse(gpus->products()) : Json()},
          {"measurements", measurements}};
}

// A cluster file is measured again and again; another file has a wrong name in --out.
void require_replaceable(const std::string& path) {
  if (!exists(path)) return;
  try {
    static_cast<void>(load_cluster(path));
  } catch (const InputError&) {
    throw InputError(fmt::format("--out {}: exists and is no cluster file", path));
  }
}

// Writes `bare` with what has been measured so far, and names that in its source. Returns what the
// file holds.
ClusterSpec write_cluster(const std::string& path, ClusterSpec bare, const BenchResult& result,
                          const std::optional<ClusterSpec>& declared,
                          const std::string& unfinished) {
  bare.rates = result.rates;
  bare.outside = result.outside;
  bare.host_outside = declared ? declared->host_outside : estimated_host_outside(bare);
  bare.host_outside.system = Bytes{0};  // the host memory is what the system leaves
  if (!unfinished.empty()) bare.source += "; unfinished: it measured only " + unfinished;
  if (declared) {
    bare.source += fmt::format("; the rest is from {} ({})", declared->name, declared->source);
  }
  const std::vector<Diagnostic> findings = check(bare);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
  write_file_atomically(path, print_cluster(bare));
  return bare;
}

// Measures the ranks of `world`, or with none all of them here. Process 0 writes and prints.
int bench_in(const BenchFlags& flags, World* world, const RankMachine& machine) {
  std::optional<ClusterSpec> declared;
  if (!flags.declared.empty())
    declared = load_cluster(find_shared(Shelf::clusters, "--declared", flags.declared));
  if (machine.gpus && flags.storage == "f32") {
    throw InputError("--storage f32: attention tiles of a GPU are bf16; leave it out");
  }
  const bool speaks = world == nullptr || world->speaks();
  ClusterSpec cluster = cluster_of(flags, machine.gpus.get());
  if (declared) {
    cluster.largest_cudnn_head = declared->largest_cudnn_head;
    cluster.cudnn_windows = declared->cudnn_windows;
  }
  if (speaks && machine.gpus && !flags.backend.deterministic &&
      cluster.attention == AttentionKernels::own) {
    say(fmt::format("measuring the built-in attention kernels: {}\n",
                    machine.gpus->why_no_cudnn()));
  }
  if (speaks) static_cast<void>(AtomicFile(flags.out));  // fails now if it cannot be written
  if (speaks) require_replaceable(flags.out);
  BenchOptions options = options_of(flags, machine, cluster);
  options.machine.world = world;
  options.machine.connect = machine.ranks.connect;
  if (world != nullptr) options.machine.devices = sum(*world, options.machine.devices);
  if (declared) {
    options.declared = declared->rates;
    options.declared_outside = declared->outside;
  }
  StatusLine status;
  options.progress = [&](std::string_view what) {
    if (speaks) status.show(what);
  };
  options.keep = [&](const BenchResult& result, const std::vector<std::string>& measured) {
    if (!speaks) return;
    write_cluster(flags.out, cluster, result, declared,
                  fmt::format("{}", fmt::join(measured, ", ")));
  };
  const BenchResult result = bench(options);
  if (!speaks) return static_cast<int>(ExitCode::done);
  status.end();
  const ClusterSpec wrote = write_cluster(flags.out, cluster, result, declared, "");
  print_result(flags.json ? json_line(json(result, wrote, flags.out, machine.gpus.get()))
                          : fmt::format("{}\nwrote {}\n", table(result), flags.out));
  return static_cast<int>(ExitCode::done);
}

// Groups of a node and between nodes need as many ranks on each, numbered node by node.
void require_blocks(World& world) {
  const Place& place = world.place();
  agree(world, [&] {
    if (place.process == place.node * place.locals + place.local &&
        place.processes == place.nodes * place.locals) {
      return;
    }
    throw InputError(
        "a bench needs as many processes on each host, numbered host by host, such as mpirun "
        "--map-by slot gives");
  });
}

int run_bench(BenchFlags flags) {
  if (flags.quick && flags.brief) throw InputError("--quick and --short exclude each other");
  if (flags.processes.communicator == "thread") {
    note_lone_processes();
    return bench_in(flags, nullptr, open_machine(flags.backend, flags.ranks));
  }
  return run_process(flags.processes, flags.backend, [&](World& world, const LateConnect& connect) {
    require_blocks(world);
    flags.ranks = world.place().ranks;
    flags.nodes = world.place().nodes;
    RankMachine machine = agreed(world, [&] { return open_machine(flags.backend, world.place()); });
    if (machine.near) {
      settle(world, machine.gpus ? machine.gpus->numa_nodes : std::vector<std::int32_t>());
    }
    machine.ranks.connect = connect(world, std::chrono::seconds(kDeadlineSeconds));
    return bench_in(flags, &world, machine);
  });
}

}  // namespace

Command declare_bench(Options& options) {
  auto flags = std::make_shared<BenchFlags>();
  options.value("--out", flags->out, "Cluster file to write").required();
  options.value("--name", flags->name, "Name of the cluster; default: cpu-local or gpu-local");
  const Option ranks =
      options.value("--ranks", flags->ranks, "Ranks to run at once, each a device of the cluster")
          .shows_default()
          .integer(1, kRanksMax);
  add_machine_flags(options, flags->backend,
                    "Host memory of the cluster; default: half of the machine's, or with a GPU "
                    "nine tenths of what is free");
  options.value("--storage", flags->storage, "Storage of parameters and activations: f32 or bf16")
      .shows_default()
      .one_of({"f32", "bf16"});
  options.value("--device-memory", flags->device_memory,
                "Device memory of one rank, such as 8GiB; default: its share of half of the "
                "machine's, or of the GPU's");
  options
      .value("--peak-flops", flags->peak_flops,
             "Peak of the data sheet, 100 % of MFU; default: the fastest rate")
      .positive();
  options.value("--declared", flags->declared,
                "Cluster, a name or a file, whose rates are used until they are measured, and "
                "where they cannot "
                "be measured");
  options.flag("--short", flags->brief, "Only the few sizes that make up most of a step");
  options.flag("--quick", flags->quick, "Small and short: tests that it works, not how fast");
  options.flag("--json", flags->json, "Print one JSON object");
  options
      .value("--communicator", flags->processes.communicator,
             "thread: all ranks in this process; mpi or nccl: a process for each rank, as for "
             "train; the launcher says how many")
      .shows_default()
      .one_of({"thread", "mpi", "nccl"})
      .excludes(ranks);
  return [flags, options] {
    flags->processes.given = options.given();
    return run_bench(*flags);
  };
}

}  // namespace fpdt
