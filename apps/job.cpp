// Loading a job.
#include "job.h"

#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"

namespace fpdt {
Job load_job(const std::string& path) {
  bool has_hash = false;
  Schedule schedule = load_schedule(path, &has_hash);
  if (schedule.problem.empty()) {
    throw InputError(
        fmt::format("{}: the schedule has no problem section, so there is no model to train; "
                    "write it with fpdt-plan lower",
                    path));
  }
  auto [problem, strategy] = parse_problem(schedule.problem);
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
  const Prediction predicted = predict(problem, strategy);
  return {verified(std::move(schedule)), std::move(problem), std::move(strategy), predicted,
          has_hash};
}

RankOptions rank_options(const RankFlags& flags, const Schedule& schedule, RankOptions options) {
  if (flags.communicator == "solo") {
    const std::int64_t rank = flags.rank.value_or(0);
    if (rank < 0 || rank >= schedule.ranks) {
      throw InputError(fmt::format("--rank: expected 0 to {}, found {}", schedule.ranks - 1, rank));
    }
    options.solo_rank = rank;
  }
  return options;
}

}  // namespace fpdt
