// A schedule file, loaded and proven, with the question it answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fpdt/plan/bytes.h"
#include "fpdt/schedule/verify.h"
#include "fpdt/spec/strategy.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

struct Job {
  VerifiedSchedule schedule;
  Problem problem;
  Strategy strategy;
  Prediction predicted;   // of one rank: the closed form, which does not look at the schedule
  bool has_hash = false;  // the file is as a planner wrote it
};

// InputError with the findings of loader, verifier or problem section.
Job load_job(const std::string& path);

// The flags that say which ranks run.
struct RankFlags {
  std::string communicator = "thread";
  std::optional<std::int64_t> rank;  // of solo; default: 0
};

// `options` with the rank that runs alone, if one does. InputError when the flags do not fit the
// schedule.
RankOptions rank_options(const RankFlags& flags, const Schedule& schedule, RankOptions options);

}  // namespace fpdt
