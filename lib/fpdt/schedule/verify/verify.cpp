// Runs the parts of the verifier in order.
#include "fpdt/schedule/verify.h"

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {

std::vector<Diagnostic> verify(const Schedule& schedule) {
  Findings findings;
  check_structure(schedule, findings);
  if (!findings.empty()) return findings.list();
  check_shapes(schedule, findings);
  check_feeds(schedule, findings);
  check_roles(schedule, findings);
  check_placement(schedule, findings);
  if (!findings.any("S205")) check_coverage(schedule, findings);
  check_loads(schedule, findings);
  check_slices(schedule, findings);
  if (!findings.any("S201") && !findings.any("S401") && !findings.any("S402")) {
    check_order(schedule, findings);
  }
  if (!findings.empty()) return findings.list();
  check_sharing(schedule, findings);
  check_origins(schedule, findings);
  return findings.list();
}

VerifiedSchedule verified(Schedule schedule) {
  const std::vector<Diagnostic> findings = verify(schedule);
  if (!findings.empty()) {
    throw InputError("the schedule is not safe to execute:\n" + format_diagnostics(findings));
  }
  return VerifiedSchedule(std::move(schedule));
}

}  // namespace fpdt
