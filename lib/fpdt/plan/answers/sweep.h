// A row of questions that differ in one thing, and their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/plan/answers/outcome.h"
#include "fpdt/plan/search/search.h"

namespace fpdt {

// weak_scaling: devices, with the sequence growing along.
enum class Over : std::uint8_t { chunk, seq_len, gpus, weak_scaling, host_budget };
constexpr auto words_of(Over) {
  return word_list("chunk", "seq-len", "gpus", "weak-scaling", "host-budget");
}

struct SweepPoint {
  std::int64_t value = 0;  // tokens, devices or bytes
  Problem problem;
  Pins pins;
  std::optional<Outcome> outcome;  // when something fits
  Shortage shortage;               // when not
};

// A value for people: "64K", "8", "512 GiB".
std::string label(Over over, std::int64_t value);
// The same for a point: "64, 2M" where the sequence grows along.
std::string label(Over over, const SweepPoint& point);

// The values that tell most about a question, ascending.
std::vector<std::int64_t> usual_values(const Problem& problem, const Pins& pins, Over over,
                                       const OnProgress& progress = {});
// Whether the points are machines of different sizes. Each uses as many of its GPUs as it can.
inline bool over_machines(Over over) { return over == Over::gpus || over == Over::weak_scaling; }
// The question with one value, unanswered. InputError when it cannot be asked.
SweepPoint sweep_point(const Problem& problem, const Pins& pins, Over over, std::int64_t value);

struct SweepListener {
  std::function<void(const SweepPoint&)> begun, answered;
  OnProgress progress;  // of the search between the two
};
// The fastest strategy of each point within its budgets.
void answer_points(std::vector<SweepPoint>& points, const SweepListener& listener);
// The same for the usual lengths, which go on doubling until one does not fit.
void answer_lengths(std::vector<SweepPoint>& points, const SweepListener& listener);

}  // namespace fpdt
