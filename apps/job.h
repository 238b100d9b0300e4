// A schedule file, loaded and proven, with the question it answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fpdt/plan/bytes.h"
#include "fpdt/train/ranks.h"

#include "flags.h"
#include "schedule_file.h"

namespace fpdt {

struct Job : ScheduleFile {
  Prediction predicted;  // of one rank: the closed form, which does not look at the schedule
};

// InputError with the findings of loader, verifier or problem section.
Job load_job(const std::string& path);

// Declares --data-format.
void add_data_format(Options& options, std::string& format);

// The flags that say which ranks run.
struct RankFlags {
  std::string communicator = "thread";
  std::optional<std::int64_t> rank;  // that runs alone with "solo"; default: 0
};

// The world of a run. InputError when the flags do not fit the schedule.
std::unique_ptr<World> open_world(const RankFlags& flags, const Schedule& schedule);

}  // namespace fpdt
