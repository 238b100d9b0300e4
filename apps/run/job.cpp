// Loading a job.
#include "run/job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <malloc.h>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/local.h"
#include "fpdt/cost/machine.h"
#include "fpdt/mpi/open.h"
#include "fpdt/nccl/open.h"
#include "fpdt/sim/simulate.h"

#include "common/command.h"

namespace fpdt {

Job load_job(const std::string& path) {
  ScheduleFile file = load_schedule_file(path);
  const Prediction predicted = predict(file.problem, file.strategy);
  malloc_trim(0);  // what reading took, a gigabyte for the longest schedules
  return {std::move(file), predicted};
}

void add_data_format(Options& options, std::string& format, const std::string& flag,
                     const std::string& help) {
  options.value(flag, format, "bytes, u16 or u32: " + help).one_of({"bytes", "u16", "u32"});
}

namespace {

// Long enough for what comes between two messages: reading files, warming libraries up, a step of
// the slowest rank at the slowest rates.
std::chrono::milliseconds default_deadline(const Job& job) {
  constexpr std::chrono::minutes kBeside{5};
  try {
    const Schedule& schedule = job.schedule.schedule();
    const Machine slow(job.problem.cluster, RateEnd::slow);
    const std::chrono::nanoseconds step(lower_bound(schedule, schedule.train, slow));
    return kBeside + 2 * std::chrono::duration_cast<std::chrono::milliseconds>(step);
  } catch (const InputError&) {
    return kBeside;  // the cluster file of the plan has no rates
  }
}

std::chrono::milliseconds deadline_of(const RankFlags& flags, const Job& job) {
  return flags.deadline ? std::chrono::seconds(*flags.deadline) : default_deadline(job);
}

// The processes of a job, as this one sees them.
struct Processes {
  std::unique_ptr<World> world;
  LateConnect connect;
};

void require_backend(const RankFlags& flags, const MachineFlags& machine) {
  if (flags.communicator == "nccl" && machine.backend != "cuda") {
    throw InputError("--communicator nccl connects GPUs: it needs --backend cuda");
  }
  if (flags.communicator == "mpi" && machine.backend != "cpu") {
    throw InputError(
        "--communicator mpi moves host memory: it needs --backend cpu; GPUs are connected by "
        "--communicator nccl");
  }
}

NcclOptions nccl_options(const RankFlags& flags, std::chrono::milliseconds deadline, bool speaks) {
  NcclOptions options;
  options.native_sums = flags.native_sums;
  options.deadline = deadline;
  if (!speaks) return options;
  options.warmed_up = [](Bytes bytes) {
    say(fmt::format("NCCL took {} of device memory\n", format_bytes(bytes)));
  };
  return options;
}

// A rank with a GPU of its own, without MPI.
Processes open_torchrun(const RankFlags& flags, const MachineFlags& machine,
                        std::chrono::milliseconds deadline) {
  require_backend(flags, machine);
  const Torchrun place = torchrun();
  NcclOptions options = nccl_options(flags, deadline, place.rank == 0);
  options.device = own_gpu(machine, place_of(place));
  NcclJob job = open_nccl(place, options);
  return {std::move(job.world),
          [connect = std::move(job.connect)](World&, auto) { return connect; }};
}

// Small messages go where the launcher offers it: through MPI, whose failures reach everybody, or
// through NCCL. Where it is MPI, no other flag decides how processes meet, so they can compare
// their flags.
Processes open_processes(const RankFlags& flags, const MachineFlags& machine) {
  const std::chrono::seconds deadline(flags.deadline.value_or(300));
  const bool nccl = flags.communicator == "nccl";
  if (nccl) set_environment(nccl_options(flags, deadline, false));
  // torchrun itself may run under mpirun or srun.
  if (nccl && (is_launched_by_torchrun() || !is_launched_by_mpi())) {
    return open_torchrun(flags, machine, deadline);
  }
  MpiJob job = open_mpi({.deadline = deadline});
  if (!nccl) {
    return {std::move(job.world),
            [connect = std::move(job.connect)](World&, auto) { return connect; }};
  }
  return {std::move(job.world), [=](World& world, std::chrono::milliseconds limit) {
            NcclOptions options = nccl_options(flags, limit, world.speaks());
            options.device = agreed(world, [&] { return own_gpu(machine, world.place()); });
            return connect_nccl(world, options);
          }};
}

// The flags that must be the same for all processes. Hosts may have other resources, and their
// files other names; whoever reads a file compares its contents.
Facts common_flags(const Facts& given) {
  constexpr std::array<std::string_view, 5> kOfAHost{"--device", "--flight-dir", "--host-memory",
                                                     "--log", "--threads"};
  constexpr std::array<std::string_view, 4> kFiles{"schedule", "--data", "--evaluate-data",
                                                   "--loss-mask"};
  const auto in = [](const auto& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  Facts facts{{"version", FPDT_VERSION}};
  for (const auto& [name, value] : given) {
    if (!in(kOfAHost, name)) facts.emplace_back(name, in(kFiles, name) ? "given" : value);
  }
  return facts;
}

Job load_for(const World& world, const std::string& schedule) {
  Job job = load_job(schedule);
  const std::int64_t ranks = job.schedule.schedule().ranks;
  if (ranks == world.place().ranks) return job;
  throw InputError(
      fmt::format("{}: is for {} ranks, but the launcher started {} processes; start {}", schedule,
                  ranks, world.place().ranks, ranks));
}

// Tells the others why this process stops. One process says it to the user.
int stop(World& world, const Error& error) {
  const Failure mine{error.code(), world.place().process, error.what()};
  bool says = world.speaks();
  if (!world.has_agreed_to_fail()) {
    world.fail(mine);
    const std::optional<Failure> first = world.failure();
    says = !first || first->process == mine.process;
  }
  if (says) {
    const bool names_rank = world.has_agreed_to_fail();
    say(fmt::format("fpdt-run: {}{}\n", names_rank ? "" : fmt::format("rank {}: ", mine.process),
                    error.what()));
  }
  return static_cast<int>(error.code());
}

}  // namespace

void note_lone_processes() {
  const std::int64_t processes = launched_processes();
  if (processes == 1 || !speaks_for_job()) return;
  say(
      fmt::format("note: a launcher started {} processes, and each does all of this by itself; "
                  "with --communicator mpi or nccl each would be a rank\n",
                  processes));
}

int run_process(const RankFlags& flags, const MachineFlags& machine,
                const std::function<int(World& world, const LateConnect& connect)>& body) {
  const Processes processes = open_processes(flags, machine);
  World& world = *processes.world;
  int code = 0;
  try {
    require_same(world, common_flags(flags.given));
    agree(world, [&] { require_backend(flags, machine); });
    code = body(world, processes.connect);
  } catch (...) {
    code = stop(world, current_error());
  }
  return world.leave(code);
}

int run_together(const RankFlags& flags, const MachineFlags& machine, const std::string& schedule,
                 const RankBody& body) {
  if (flags.communicator == "thread" || flags.communicator == "solo") {
    note_lone_processes();
    const Job job = load_job(schedule);
    const std::int64_t ranks = job.schedule.schedule().ranks;
    if (flags.communicator == "thread") {
      LocalWorld world(ranks);
      // Ranks that share a GPU wait for the work of each other.
      const bool usual = machine.backend == "cuda" && !flags.deadline;
      return body(world, usual ? nullptr : connect_local(world, deadline_of(flags, job)), job);
    }
    const std::int64_t rank = flags.rank.value_or(0);
    if (rank < 0 || rank >= ranks) {
      throw InputError(fmt::format("--rank: expected 0 to {}, found {}", ranks - 1, rank));
    }
    LocalWorld world(rank, ranks);
    return body(world, nullptr, job);
  }
  return run_process(flags, machine, [&](World& world, const LateConnect& connect) {
    const Job job = agreed(world, [&] { return load_for(world, schedule); });
    const std::chrono::milliseconds deadline = deadline_of(flags, job);
    world.set_deadline(deadline);
    return body(world, connect(world, deadline), job);
  });
}

}  // namespace fpdt
