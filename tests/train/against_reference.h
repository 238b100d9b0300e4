// A case against the reference: loss, gradients of every parameter and the update, in two steps.
#pragma once

#include <gtest/gtest.h>

#include "fpdt/check/check.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/schedule/stated.h"

#include "cases.h"

namespace fpdt {

// Also verifies that the schedule does what its problem states.
inline CheckReport expect_equals_reference(const Case& one) {
  const Lowered lowered = lower(one.problem, one.strategy);
  const Stated stated = stated_by(one.problem, one.strategy);
  EXPECT_EQ(format_diagnostics(verify_stated(lowered.schedule.schedule(), stated)), "");
  CheckOptions options;
  options.seed = 2;
  options.ranks = Rig::in_order();
  // Two steps: the second starts from moments, versions and gradients that the first one left.
  const CheckReport report = check_schedule(lowered.schedule, one.problem, options);
  EXPECT_LE(report.loss_error, report.tolerance);
  EXPECT_LE(report.evaluate_error, report.tolerance);
  EXPECT_LE(report.grad_norm_error, kUpdateTolerance);
  for (const TensorCheck& tensor : report.tensors) {
    EXPECT_TRUE(tensor.agrees) << tensor.tensor << ": errors of gradient " << tensor.gradient
                               << " (tolerance " << tensor.tolerance << "), parameter "
                               << tensor.parameter << ", moments " << tensor.moment1 << " and "
                               << tensor.moment2;
  }
  return report;
}

}  // namespace fpdt
