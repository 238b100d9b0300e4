// The answer to a question, as one screen for people and one object for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/plan/plan.h"

#include "nearest.h"

namespace fpdt {

struct Answer {
  Problem problem;
  Pins pins;
  SearchResult search;
  std::optional<Plan> plan;  // when it fits
  double seconds = 0;        // that the search took
  std::vector<Nearest> nearest;
  std::optional<std::int64_t> longest;  // of max-seq
};

// Bytes live at the peak of the device by what they are, and what the arena holds free then.
// Parameters, gradients and optimizer are the rank's shards; gathered copies and sums of a layer
// are "gathered".
struct PeakBytes {
  Bytes parameters, gathered, gradients, optimizer, activations, staging, other, free;
};
PeakBytes device_peak(const Plan& plan);

// What lies outside the arena, part by part: "context 1.2 GiB, libraries 128 MiB"; "" for nothing.
std::string outside_text(const ClusterSpec& cluster);

// That the ranks of a NUMA node need more than it has, in bytes, and what follows.
std::string numa_text(const Problem& problem, const Usage& usage);

// `out_dir`: where plan and schedule were written; empty: nowhere.
std::string answer_text(const Answer& answer, const std::string& out_dir);
std::string answer_json(const Answer& answer);

// plan.yaml: the strategy, under comments that say what it was made for and what it will do.
std::string plan_yaml(const Answer& answer);

}  // namespace fpdt
