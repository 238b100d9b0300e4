// Loading a job.
#include "job.h"

#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/local.h"
#include "fpdt/cost/machine.h"
#include "fpdt/mpi/open.h"
#include "fpdt/sim/simulate.h"

#include "command.h"

namespace fpdt {

Job load_job(const std::string& path) {
  ScheduleFile file = load_schedule_file(path);
  const Prediction predicted = predict(file.problem, file.strategy);
  return {std::move(file), predicted};
}

void add_data_format(Options& options, std::string& format) {
  options
      .value("--data-format", format,
             "bytes, u16 or u32: format of a token file whose name does not say it")
      .one_of({"bytes", "u16", "u32"});
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

int run_together(const RankFlags& flags, const std::string& schedule, const RankBody& body) {
  if (flags.communicator != "mpi") {
    const Job job = load_job(schedule);
    const std::int64_t ranks = job.schedule.schedule().ranks;
    if (flags.communicator == "thread") {
      LocalWorld world(ranks);
      return body(world, nullptr, job);
    }
    const std::int64_t rank = flags.rank.value_or(0);
    if (rank < 0 || rank >= ranks) {
      throw InputError(fmt::format("--rank: expected 0 to {}, found {}", ranks - 1, rank));
    }
    LocalWorld world(rank, ranks);
    return body(world, nullptr, job);
  }
  MpiJob processes = open_mpi({.deadline = std::chrono::seconds(flags.deadline.value_or(300))});
  World& world = *processes.world;
  int code = 0;
  try {
    const Job job = agreed(world, [&] { return load_for(world, schedule); });
    if (!flags.deadline) world.set_deadline(default_deadline(job));
    code = body(world, processes.connect, job);
  } catch (...) {
    code = stop(world, current_error());
  }
  return world.leave(code);
}

}  // namespace fpdt
