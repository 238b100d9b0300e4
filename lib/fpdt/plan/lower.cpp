// lower = method, depend, place, verify.
#include "fpdt/plan/lower.h"

#include "fpdt/plan/methods/fpdt.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {

Lowered lower(const Problem& problem, const Strategy& strategy, std::string problem_section) {
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
  Schedule schedule = lower_fpdt(problem, strategy);
  schedule.problem = std::move(problem_section);
  depend(schedule);
  const Placement placement = place(schedule);
  return {verified(std::move(schedule)), placement};
}

}  // namespace fpdt
