// fpdt-run train: steps on real text, with everything around them that a long run needs.
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fpdt/runtime/arena.h"
#include "fpdt/train/checkpoint.h"

#include "run/first_check.h"
#include "run/train/training.h"
#include "run/verbs.h"

namespace fpdt {
namespace {

// Any schedule that runs is proven safe. Only schedules that the planner writes are tested to
// compute the model.
std::string unhashed_note(const std::string& path) {
  return fmt::format(
      "note: {} has no hash, so it was written or changed by hand or by another program. It is "
      "safe to run; fpdt-run check tells whether it computes the model\n",
      path);
}

// The CPU backend has the memory of devices in that of the host. Throws MemoryError when the ranks
// of this host need more than there is.
void require_host_memory(const Job& job, const Place& place) {
  const Schedule& schedule = job.schedule.schedule();
  const std::int64_t ranks = place.locals * std::ssize(place.present);
  const Bytes device = ranks * arena_bytes(schedule, MemorySpace::device);
  const Bytes host = ranks * (arena_bytes(schedule, MemorySpace::host_pinned) +
                              arena_bytes(schedule, MemorySpace::host));
  require_memory(
      device + host,
      fmt::format("this host with {} on the CPU ({} in place of devices, {} as host "
                  "memory{})",
                  ranks == 1 ? "one rank" : fmt::format("{} ranks", ranks), format_bytes(device),
                  format_bytes(host),
                  job.problem.cluster.has_gpus() ? "; --backend cuda trains on GPUs" : ""));
}

// Says on which NUMA nodes ranks run, and what will be slow there.
void say_homes(const RankMachine& machine, const Job& job) {
  Bytes host_memory;
  for (const MemorySpace space : kMemorySpaces) {
    if (space == MemorySpace::device && machine.gpus) continue;
    host_memory += arena_bytes(job.schedule.schedule(), space);
  }
  const std::string homes = homes_text(machine.homes);
  if (!homes.empty()) say(homes + "\n");
  for (const std::string& warning : warnings(machine.homes, host_memory)) {
    say(fmt::format("note: {}\n", warning));
  }
}

// Returns the exit code: 4 when more memory was used than predicted, 130 or 143 after a signal that
// interrupts.
int train_in(World& world, const Connect& connect, const Job& job, const TrainFlags& flags,
             FlightDirectory& flight) {
  if (!job.has_hash && world.speaks()) say(unhashed_note(flags.schedule));
  agree(world, [&] {
    require_sensible(flags);
    // Opened before the work, so that a wrong path costs no time.
    if (!flags.draw.empty() && world.speaks()) AtomicFile{flags.draw};
    if (!flags.init.empty() && world.speaks()) require_weights(flags.init, job.problem.model);
    if (flags.check_first && world.speaks()) check_first(job, flags.schedule);
  });
  RankMachine machine = agreed(world, [&] { return open_machine(flags.backend, world.place()); });
  if (!machine.gpus) agree(world, [&] { require_host_memory(job, world.place()); });
  machine.ranks.world = &world;
  machine.ranks.connect = connect;
  if (machine.near) {
    machine.homes =
        settle(world, machine.gpus ? machine.gpus->numa_nodes : std::vector<std::int32_t>());
  }
  if (world.speaks()) say_homes(machine, job);
  machine.ranks.flight = [&](std::int64_t rank) { return flight.of(rank); };
  Run run(flags, job, machine, world, flight);
  const int signal = run.train();
  // All results are printed before the verdict.
  const std::vector<std::string> deviations = run.report(signal);
  agree(world, [&] { run.draw(); });
  if (!deviations.empty() && world.speaks()) {
    fmt::print(stderr, "fpdt-run: measured and predicted memory disagree: {}\n",
               fmt::join(deviations, "; "));
  }
  if (signal != 0 && signal != kFinishSignal) return 128 + signal;
  return static_cast<int>(deviations.empty() ? ExitCode::done : ExitCode::disagree);
}

}  // namespace

Command declare_train(Options& options) {
  auto flags = std::make_shared<TrainFlags>();
  add_train_flags(options, *flags);
  return [flags, options] {
    catch_stop_signals();
    catch_finish_signal();
    flags->ranks.given = options.given();
    return run_together(
        flags->ranks, flags->backend, flags->schedule,
        [&](World& world, const Connect& connect, const Job& job) {
          FlightDirectory flight(flags->flight, world, job.schedule.schedule(),
                                 [](const std::string& text) { say(text); });
          return flight.watch([&] { return train_in(world, connect, job, *flags, flight); });
        });
  };
}

}  // namespace fpdt
