// Lowers, checks, and says so.
#include "run/first_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/plan/lower.h"
#include "fpdt/plan/narrow.h"

#include "common/command.h"

namespace fpdt {

void check_first(const Job& job, const std::string& path) {
  if (!job.has_hash) {
    throw InputError(
        fmt::format("--check-first checks the strategy of {} in a narrow problem, which proves "
                    "nothing of a file "
                    "without a hash: lower it again, or leave --check-first out",
                    path));
  }
  const auto [problem, strategy] = narrowed(job.problem, job.strategy);
  const Lowered lowered = lower(problem, strategy, print_problem(problem, strategy));
  const CheckReport report = check_schedule(lowered.schedule, problem, {});
  double largest = std::max(report.loss_error, report.evaluate_error);
  for (const TensorCheck& tensor : report.tensors) largest = std::max(largest, tensor.gradient);
  const std::string what = fmt::format(
      "its strategy, in {} layers of width {} and {} tokens over {} ranks, {} the reference: "
      "largest error {:.1e}, tolerance {:.1e}",
      problem.model.layers, problem.model.hidden, problem.seq_len, problem.ranks(),
      report.agrees() ? "agrees with" : "disagrees with", largest, report.tolerance);
  if (!report.agrees()) {
    throw Error(ExitCode::disagree, fmt::format("{}: {}", path, what));
  }
  say(fmt::format("checked first: {}\n", what));
}

}  // namespace fpdt
