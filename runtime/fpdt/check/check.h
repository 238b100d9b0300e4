// Training steps against the reference: loss, the gradient of every parameter, and the update.
//
// Before a step, and before its evaluation, all memory that no step may inherit is NaN. A second
// step then shows what a single one cannot: sums that go on from step to step.
//
// Gradients are compared with those of the reference from the same parameters. The update is
// compared with the reference's AdamW from the measured gradients, so that it is held to its own,
// tighter tolerance. Errors are the largest difference of two elements, relative to the tensor's
// largest element.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fpdt/train/trainer.h"

namespace fpdt {

struct TensorCheck {
  std::string tensor;
  double gradient = 0;   // errors
  double parameter = 0;  // after the update
  double moment1 = 0;
  double moment2 = 0;
  bool agrees = false;
};

struct CheckReport {
  double loss = 0, reference_loss = 0, loss_error = 0;
  double evaluate_error = 0;   // of the loss after the update, by the evaluation's calls
  double grad_norm_error = 0;  // against the norm of the measured gradients
  double tolerance = 0;        // of loss and gradients
  std::vector<TensorCheck> tensors;

  [[nodiscard]] bool agrees() const;
};

// Rounding of a network of L layers: in forward and in backward about eight rounded tensors follow
// one another per layer, each with an error of sqrt(K) units of an f32 sum over K terms, or one
// unit of the storage type (2^-8 for bf16) where that is coarser.
double derived_tolerance(const Problem& problem, Storage storage);
// Of the update: f32 moments and a global norm that is an f32 sum.
inline constexpr double kUpdateTolerance = 1e-5;

// Takes the trainer's step from wherever it stands. All ranks must be present.
CheckReport check_step(Trainer& trainer, const std::vector<Sample>& samples, double learning_rate,
                       double tolerance);

// Parameters far from the start of a training, so that none is without effect.
ElementSource random_parameters(std::uint64_t seed);
// Sequences of random tokens in documents of random lengths (one, where the problem has no others),
// an eighth of the labels masked.
std::vector<Sample> random_samples(const Problem& problem, std::int64_t count, std::uint64_t seed);

// The sequences of two steps.
using CheckSamples = std::array<std::vector<Sample>, 2>;

struct CheckOptions {
  // `count` sequences for each step; null: random ones.
  std::function<CheckSamples(const Problem&, std::int64_t count)> samples;
  std::uint64_t seed = 1;       // of parameters and random sequences
  double learning_rate = 1e-2;  // of the first step; the second takes half of it
  double tolerance = 0;         // of loss and gradients; 0: derived
  RankOptions ranks;            // all of them
};

// Two steps from random parameters, with the larger error of each kind. InputError when the
// reference would take minutes or the schedule is not one to train; NumericError when loss or norm
// is not finite.
CheckReport check_schedule(const VerifiedSchedule& schedule, const Problem& problem,
                           const Strategy& strategy, const CheckOptions& options);

}  // namespace fpdt
