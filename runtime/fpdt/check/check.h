// Compares training steps with the reference: loss, the gradient of every parameter, and the
// update.
//
// All memory that a step must not inherit is filled with NaN before each step and before its
// evaluation. A second step catches sums that carry over from the first.
//
// A schedule that stores bf16 is not compared itself, because rounding would hide errors. Its exact
// twin is, on CPUs and with the tolerance of f32. Then the schedule runs as written, and each op
// must write the bits of its rounding twin (twins.h). Another backend than the CPU's rounds in
// another order: there, gradients as written may be twice as far from the reference as those of the
// rounding twin are.
//
// The reference computes gradients from the same parameters. The update is compared with the
// reference's AdamW applied to the measured gradients, so that it can be held to a tighter
// tolerance of its own. An error is the largest difference of two elements, relative to the
// tensor's largest element.
//
// Networks amplify rounding, and some far more than others: norms of small outputs do. A product in
// f32 is the exact one of parameters that differ a little. So a gradient may also be as far from
// the reference as this moves when each parameter changes by what a layer rounds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/train/trainer.h"

namespace fpdt {

struct TensorCheck {
  std::string tensor;
  double gradient = 0;   // relative errors
  double tolerance = 0;  // of the gradient: that of the report, or more, as amplified
  double parameter = 0;  // after the update
  double moment1 = 0;
  double moment2 = 0;
  bool agrees = false;
};

// How a schedule that stores bf16 rounds.
struct StorageCheck {
  std::string first_difference;  // the op that did not write the bits of its twin; "" for none
  // The error of gradients and loss as written; only for a backend other than the CPU's.
  double error = 0;
  double tolerance = 0;
  [[nodiscard]] bool agrees() const { return first_difference.empty() && error <= tolerance; }
};

struct CheckReport {
  double loss = 0, reference_loss = 0, loss_error = 0;
  double evaluate_error = 0;   // of the loss that schedule.evaluate gives after the update
  double grad_norm_error = 0;  // against the norm of the measured gradients
  double tolerance = 0;        // for loss and gradients, unless amplified
  std::vector<TensorCheck> tensors;
  std::optional<StorageCheck> storage;  // nothing if all values are f32

  [[nodiscard]] bool agrees() const;
};

// The rounding error of a network of L layers in f32. Forward and backward each round about eight
// tensors in sequence per layer, and each adds an error of sqrt(K) units of a sum over K terms.
double derived_tolerance(const Problem& problem);
// For the update: the moments are f32, and the global norm is an f32 sum.
inline constexpr double kUpdateTolerance = 1e-5;

// Takes one step of the trainer from its current state. All ranks must be present, and all values
// be f32. A tolerance of 0 is derived; what it is for one gradient may then be more.
CheckReport check_step(Trainer& trainer, const std::vector<Sample>& samples, double learning_rate,
                       double tolerance = 0);

// Parameters far from their initial values, so that each one affects the result.
ElementSource random_parameters(std::uint64_t seed);
// Sequences of random tokens in documents of random length (one document per sequence if the
// problem requires it). An eighth of the labels are masked.
std::vector<Sample> random_samples(const Problem& problem, std::int64_t count, std::uint64_t seed);

// The sequences of each of the two steps.
using CheckSamples = std::array<std::vector<Sample>, 2>;

struct CheckOptions {
  // Returns `count` sequences for each step; null: random sequences.
  std::function<CheckSamples(const Problem&, std::int64_t count)> samples;
  std::uint64_t seed = 1;       // for parameters and random sequences
  double learning_rate = 1e-2;  // of the first step; the second uses half of it
  double tolerance = 0;         // for loss and gradients; 0: derived
  RankOptions ranks;            // all ranks must be present
};

// Takes two steps from random parameters and reports the larger error of each kind. Throws
// InputError when the reference would take minutes or the schedule does not train, and NumericError
// when the loss or the norm is not finite.
CheckReport check_schedule(const VerifiedSchedule& schedule, const Problem& problem,
                           const CheckOptions& options);

}  // namespace fpdt
