// What both programs ask of a schedule before they use it.
#include "schedule_file.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"

namespace fpdt {

ScheduleFile load_schedule_file(const std::string& path) {
  bool has_hash = false;
  Schedule schedule = load_schedule(path, &has_hash);
  if (schedule.problem.empty()) {
    throw InputError(fmt::format(
        "{}: the schedule has no problem section, so its model and its machine are unknown; write "
        "it with fpdt-plan",
        path));
  }
  auto [problem, strategy] = parse_problem(schedule.problem);
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) {
    throw InputError(fmt::format("{}: {}", path, format_diagnostics(findings)));
  }
  if (problem.ranks() != schedule.ranks) {
    throw InputError(fmt::format("{}: the schedule has {} ranks, its problem {}", path,
                                 schedule.ranks, problem.ranks()));
  }
  return {verified(std::move(schedule)), std::move(problem), std::move(strategy), has_hash};
}

}  // namespace fpdt
