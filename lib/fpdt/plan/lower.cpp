// Runs the passes in order.
#include "fpdt/plan/lower.h"

#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {

Lowered lower(const Problem& problem, const Strategy& strategy, std::string problem_section,
              const PassObserver& observer) {
  const auto begin = [&](std::string_view pass) {
    if (observer) observer(pass);
  };
  const std::vector<Diagnostic> findings = check(problem, strategy);
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
  begin("lower");
  Schedule schedule = lower_ops(problem, strategy);
  schedule.problem = std::move(problem_section);
  leave_out_unused(schedule);
  begin("depend");
  depend(schedule);
  begin("place");
  const Placement placement = place(schedule);
  begin("verify");
  Lowered lowered{verified(std::move(schedule)), placement};
  begin("");
  return lowered;
}

}  // namespace fpdt
