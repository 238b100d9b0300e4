// A schedule file, loaded and proven, with the question it answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fpdt/io/schedule_file.h"
#include "fpdt/plan/bytes.h"
#include "fpdt/train/ranks.h"

#include "common/flags.h"
#include "run/machine.h"

namespace fpdt {

struct Job : ScheduleFile {
  Prediction predicted;  // of one rank, from problem and strategy alone
};

// InputError with the findings of loader, verifier or problem section.
Job load_job(const std::string& path);

// Declares a flag for the format of a token file.
void add_data_format(Options& options, std::string& format, const std::string& flag,
                     const std::string& help);
inline constexpr const char* kDataFormat = "format of a token file whose name does not say it";

// The flags that say which ranks run.
struct RankFlags {
  std::string communicator = "thread";
  std::optional<std::int64_t> rank;  // that runs alone with "solo"; default: 0
  // Seconds that a process waits for others; default: by the predicted step.
  std::optional<std::int64_t> deadline;
  bool native_sums = false;  // with "nccl": it adds, in an order of its own
  Facts given;               // every flag of the command, for processes to compare
};

// Connects the ranks once the process knows how long others may take.
using LateConnect = std::function<Connect(World& world, std::chrono::milliseconds deadline)>;

// For a process that meets no others: says so if a launcher started more than one.
void note_lone_processes();

// Runs `body` in a process that a launcher started, with "mpi" or "nccl". Returns the code to exit
// with. An error of one process ends all, and one of them says it. If their flags differ, they have
// an error before `body`.
int run_process(const RankFlags& flags, const MachineFlags& machine,
                const std::function<int(World& world, const LateConnect& connect)>& body);

// The work of a process of the job. `connect` is null where the ranks are in one process.
using RankBody = std::function<int(World& world, const Connect& connect, const Job& job)>;

// Loads the schedule, and runs `body` in every process of the job that the flags describe, on
// machines that `machine` describes. Returns as run_process does.
int run_together(const RankFlags& flags, const MachineFlags& machine, const std::string& schedule,
                 const RankBody& body);

}  // namespace fpdt
