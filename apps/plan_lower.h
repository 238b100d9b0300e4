// fpdt-plan lower: a model, a cluster and a length, with a strategy or defaults, as a schedule that
// is proven.
#pragma once

#include <string>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct LowerFlags {
  std::string model, cluster, seq_len, out_dir;
  std::string strategy;       // empty: defaults
  std::string device_budget;  // empty: the device's memory
  std::string host_budget;    // empty: the node's memory
  OptimizerSpec optimizer;
  bool json = false;
};

// The exit code; errors are thrown. Nothing is written unless everything fits.
int plan_lower(const LowerFlags& flags);

// fpdt-plan verify FILE: loads and proves a schedule file, prints what it is.
int plan_verify(const std::string& path, bool json);

}  // namespace fpdt
