// The checks that both programs make before they use a schedule.
#include "fpdt/io/schedule_file.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"

namespace fpdt {

namespace {

// What is wrong, with the file in which it is.
template <class Work>
auto of_file(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace

ScheduleFile prove_schedule_file(const std::string& path, Schedule schedule) {
  auto [problem, strategy] = of_file(path, [&] { return parse_problem(schedule.problem); });
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) {
    throw InputError(fmt::format("{}: {}", path, format_diagnostics(findings)));
  }
  if (problem.ranks() != schedule.ranks) {
    throw InputError(fmt::format("{}: the schedule has {} ranks, its problem {}", path,
                                 schedule.ranks, problem.ranks()));
  }
  VerifiedSchedule safe = of_file(path, [&] { return verified(std::move(schedule)); });
  const std::vector<Diagnostic> other =
      verify_stated(safe.schedule(), stated_by(problem, strategy));
  if (!other.empty()) {
    throw InputError(fmt::format("{}: does not compute what its problem says:\n{}", path,
                                 format_diagnostics(other)));
  }
  return {std::move(safe), std::move(problem), std::move(strategy), false};
}

ScheduleFile load_schedule_file(const std::string& path) {
  bool has_hash = false;
  Schedule schedule = load_schedule(path, &has_hash);
  if (schedule.problem.empty()) {
    throw InputError(fmt::format(
        "{}: the schedule has no problem section, so its model and its machine are unknown; write "
        "it with fpdt-plan",
        path));
  }
  ScheduleFile file = prove_schedule_file(path, std::move(schedule));
  file.has_hash = has_hash;
  return file;
}

}  // namespace fpdt
