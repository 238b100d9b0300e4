// A schedule file, loaded and proven, with the question that it answers.
#pragma once

#include <string>

#include "fpdt/schedule/verify.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct ScheduleFile {
  VerifiedSchedule schedule;
  Problem problem;
  Strategy strategy;
  bool has_hash = false;  // the file is as a planner wrote it
};

// Proves that a schedule is safe, and that its constants and types are those of its problem
// section. InputError with the findings.
ScheduleFile prove_schedule_file(const std::string& path, Schedule schedule);

// Loads and proves. InputError with the findings of loader, problem section or verifier.
ScheduleFile load_schedule_file(const std::string& path);

}  // namespace fpdt
