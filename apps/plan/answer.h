// The answer to a question, as one screen for people and one object for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/plan/answers/nearest.h"
#include "fpdt/plan/methods/published.h"
#include "fpdt/plan/plan.h"

#include "common/command.h"

namespace fpdt {

struct Answer {
  Problem problem;
  Pins pins;
  SearchResult search;
  std::optional<Plan> plan;  // when it fits
  double seconds = 0;        // that the search took
  std::vector<Nearest> nearest;
  std::optional<Fewer> fewer;
  std::optional<std::int64_t> longest;  // of max-seq
  std::optional<Wasted> wasted;         // of --published, beside what the plan needs
};

// Bytes live at the peak of the device by what they are, and what the arena holds free then.
// Parameters, gradients and optimizer are the rank's shards; gathered copies and sums of a layer
// are "gathered".
struct PeakBytes {
  Bytes parameters, gathered, gradients, optimizer, activations, staging, other, free;
};
PeakBytes device_peak(const Plan& plan);

// A text after its key, on one line.
std::string line(std::string_view key, const std::string& text);
// A text after its key, which has `width` columns, on aligned lines. They end within
// output_columns(), or have 20 for the text where that leaves fewer.
std::string wrapped(std::string_view key, const std::string& text, std::size_t width = 10);

// The memory outside the arena, part by part: "context 1.2 GiB, libraries 128 MiB"; "" for none.
std::string outside_text(const ClusterSpec& cluster, const Usage& usage);
// The same for a node's host memory, with the memory that there is.
std::string host_outside_text(const ClusterSpec& cluster);

// The part of the host's memory for loading and saving: "to load 292 MiB of it, 36.5 MiB per ...".
std::string checkpoint_text(const Usage& usage);

// Host memory in bytes: peaks, and their part for loading and saving.
Json host_json(const Problem& problem, const Usage& usage);

// Says that the ranks of a NUMA node need more bytes than it has, and what follows.
std::string numa_text(const Problem& problem, const Usage& usage);

// "FITS:", "FITS, TIGHTLY:", "NO PLAN FOUND:", or "DOES NOT FIT:" where that is proven.
std::string verdict(const Answer& answer);
// The text after the verdict. `out_dir`: where plan and schedule were written; empty: nowhere.
// `weights`: the Hugging Face directory that training may begin from; empty: none.
std::string answer_text(const Answer& answer, const std::string& out_dir,
                        const std::string& weights);
std::string answer_json(const Answer& answer);

// plan.yaml: the strategy, under comments that say what it was made for and what it will do.
std::string plan_yaml(const Answer& answer);

}  // namespace fpdt
