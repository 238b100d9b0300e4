// Runs a training step and the reference on the same data, and compares the two.
#include "fpdt/check/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/hash.h"
#include "fpdt/check/twins.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/reference/model.h"
#include "fpdt/reference/optimizer.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/spec/initial.h"
#include "fpdt/train/inputs.h"
#include "fpdt/train/states.h"

namespace fpdt {
namespace {

using reference::Matrix;
using reference::Parameters;

Parameters read_all(const Trainer& trainer, std::string_view kind) {
  Parameters all;
  for (const TensorSpec& spec : model_tensors(trainer.problem().model)) {
    const std::vector<float> values = trainer.tensor(spec.name, kind);
    all.tensors[spec.name] = Matrix(values.begin(), values.end());
  }
  return all;
}

// Largest absolute difference of two elements. NaN counts as infinite.
double largest_difference(const Matrix& a, const Matrix& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? HUGE_VAL : difference;
  }
  return largest;
}

double largest_element(const Matrix& a) {
  double largest = 0;
  for (const double value : a) largest = std::max(largest, std::abs(value));
  return largest;
}

// A gradient that is exactly zero has no scale of its own. Its error is measured against the
// rounding of the largest gradient.
double largest_of(const Parameters& gradients) {
  double largest = 0;
  for (const auto& [name, values] : gradients.tensors) {
    largest = std::max(largest, largest_element(values));
  }
  return largest;
}

// The size of the terms that were summed, by the largest element of the sum. Gradients of queries
// and keys cancel where a token attends to few others, and those of values do not. So the gradients
// of norms of heads, which sum the former alone, have the scale of the projection of all three. So
// have those of sinks, whose terms have either sign.
double size_of_sum(const Parameters& gradients, const std::string& name) {
  double size = largest_element(gradients.tensors.at(name));
  for (const std::string_view tensor : {"q_norm.weight", "k_norm.weight", "sinks.weight"}) {
    if (!name.ends_with(tensor)) continue;
    const std::string layer = name.substr(0, name.size() - tensor.size());
    size = std::max(size, largest_element(gradients.tensors.at(layer + "qkv.weight")));
  }
  return size;
}

double relative(double difference, double scale) {
  return difference == 0 ? 0 : difference / scale;
}

std::vector<reference::Sample> for_reference(const std::vector<Sample>& samples) {
  std::vector<reference::Sample> result;
  for (const Sample& sample : samples) {
    result.push_back({sample.tokens, sample.labels, sample.documents});
  }
  return result;
}

double scale_of(const std::vector<Sample>& samples) {
  const std::int64_t labels = unmasked(samples);
  return labels == 0 ? 0 : 1 / static_cast<double>(labels);
}

Dtype parameter_dtype(const Schedule& schedule, const std::string& tensor) {
  const State* const state = states_of(schedule, tensor, "parameter").front();
  return schedule.buffers[index(state->buffer)].dtype;
}

// Whether the stored parameters are their masters, rounded. The reference updates only the masters.
bool storage_follows(const Trainer& trainer, const std::string& tensor) {
  const double unit = parameter_dtype(trainer.schedule(), tensor) == Dtype::bf16 ? 0x1p-8 : 0;
  const std::vector<float> stored = trainer.tensor(tensor, "parameter");
  const std::vector<float> master = trainer.tensor(tensor, "weight");
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (!(std::abs(stored[i] - master[i]) <= unit * std::abs(master[i]))) return false;
  }
  return true;
}

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;  // splitmix64
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// The relative error of a sum in f32: sqrt(K) units of its K terms, of which there may be so many.
double rounding_of_sum(const Problem& problem) {
  const ModelSpec& model = problem.model;
  const auto terms =
      static_cast<double>(problem.seq_len + model.hidden + model.feed_forward + model.vocabulary);
  return 0x1p-24 * std::sqrt(terms);
}

// Each parameter, larger or smaller by this much of it.
Parameters perturbed(Parameters parameters, double relatively) {
  std::uint64_t state = 1;
  for (auto& [name, values] : parameters.tensors) {
    for (double& value : values) value *= 1 + (next_random(state) % 2 == 0 ? -1 : 1) * relatively;
  }
  return parameters;
}

// Keeps the larger error of each kind. The losses stay those of `report`.
void add_errors(CheckReport& report, const CheckReport& next) {
  const auto keep = [](double& largest, double error) { largest = std::max(largest, error); };
  keep(report.loss_error, next.loss_error);
  keep(report.evaluate_error, next.evaluate_error);
  keep(report.grad_norm_error, next.grad_norm_error);
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    TensorCheck& tensor = report.tensors[i];
    const TensorCheck& other = next.tensors[i];
    keep(tensor.gradient, other.gradient);
    keep(tensor.tolerance, other.tolerance);
    keep(tensor.parameter, other.parameter);
    keep(tensor.moment1, other.moment1);
    keep(tensor.moment2, other.moment2);
    tensor.agrees = tensor.agrees && other.agrees;
  }
}

// Throws InputError when the reference would take minutes.
void require_feasible(const Problem& problem, std::int64_t samples) {
  const ModelSpec& model = problem.model;
  const auto tokens = static_cast<double>(problem.seq_len);
  // A parameter costs 6 flops per token, forward and backward. Attention counts what queries see.
  const std::vector<std::int64_t> layers = layers_of_kinds(model);
  double pairs = 0;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    pairs += static_cast<double>(layers[k]) * attended_pairs(model.kinds[k], tokens);
  }
  const double flops =
      static_cast<double>(samples) * tokens * 6 *
          static_cast<double>(active_parameter_count(model)) +
      static_cast<double>(samples) * 12 * static_cast<double>(model.q_width()) * pairs;
  constexpr double kMost = 1e11;
  if (flops <= kMost) return;
  throw InputError(fmt::format(
      "the reference is slow (plain loops in double precision), and would need {:.0f} Gflop for "
      "this schedule (at most "
      "{:.0f}); check one with fewer tokens, layers or micro-batches",
      flops / 1e9, kMost / 1e9));
}

double largest_error(const CheckReport& report) {
  double largest = std::max(report.loss_error, report.evaluate_error);
  for (const TensorCheck& tensor : report.tensors) largest = std::max(largest, tensor.gradient);
  return largest;
}

// Two steps on the same samples, from the same parameters, of any trainer.
struct Course {
  CheckSamples samples;
  ElementSource parameters;
  double learning_rate = 0;  // of the first step; the second differs from it

  CheckReport compared(Trainer& trainer, double tolerance) const {
    CheckReport report = check_step(trainer, samples[0], learning_rate, tolerance);
    add_errors(report, check_step(trainer, samples[1], learning_rate / 2, tolerance));
    return report;
  }
  void taken(Trainer& trainer) const {
    for (const std::size_t step : {0U, 1U}) {
      trainer.poison();
      trainer.step(samples[step], step == 0 ? learning_rate : learning_rate / 2);
      trainer.poison();
      trainer.evaluate(samples[step]);
    }
  }
};

// Parameters as the schedule stores them.
void round_parameters(Trainer& twin, const Schedule& stored) {
  for (const TensorSpec& spec : model_tensors(twin.problem().model)) {
    if (parameter_dtype(stored, spec.name) != Dtype::bf16) continue;
    std::vector<float> values = twin.tensor(spec.name, "parameter");
    for (float& value : values) value = widen(narrow(value));
    twin.set_tensor(spec.name, "parameter", values);
  }
}

StorageCheck check_storage(const VerifiedSchedule& written, const VerifiedSchedule& twin,
                           const Problem& problem, const Course& course,
                           const CheckOptions& options) {
  const Schedule& schedule = written.schedule();
  constexpr double kNone = std::numeric_limits<double>::infinity();  // tolerance
  const bool on_cpus = !options.ranks.make_backend;
  WriteLog found(schedule), expected(schedule);
  StorageCheck report;
  double known = 0;
  {
    Trainer trainer(twin, problem, expected.ranks(options.ranks.threads));
    trainer.set_parameters(course.parameters);
    round_parameters(trainer, schedule);
    if (on_cpus) {
      course.taken(trainer);
    } else {
      known = largest_error(course.compared(trainer, kNone));
    }
  }
  RankOptions ranks = options.ranks;
  if (on_cpus) ranks.make_backend = found.ranks(options.ranks.threads).make_backend;
  Trainer trainer(written, problem, ranks);
  trainer.set_parameters(course.parameters);
  if (on_cpus) {
    course.taken(trainer);
    report.first_difference = found
                                  .first_difference(expected, {schedule.train, schedule.evaluate,
                                                               schedule.train, schedule.evaluate})
                                  .value_or("");
  } else {
    report.error = largest_error(course.compared(trainer, kNone));
    report.tolerance = 2 * known;
  }
  return report;
}

}  // namespace

bool CheckReport::agrees() const {
  return loss_error <= tolerance && evaluate_error <= tolerance &&
         grad_norm_error <= kUpdateTolerance && (!storage || storage->agrees()) &&
         std::all_of(tensors.begin(), tensors.end(), [](const TensorCheck& t) { return t.agrees; });
}

double derived_tolerance(const Problem& problem) {
  return 16 * static_cast<double>(problem.model.layers) * rounding_of_sum(problem);
}

CheckReport check_step(Trainer& trainer, const std::vector<Sample>& samples, double learning_rate,
                       double tolerance) {
  const ModelSpec& model = trainer.problem().model;
  const std::vector<reference::Sample> sequences = for_reference(samples);
  const double scale = scale_of(samples);
  const Parameters parameters = read_all(trainer, "parameter");
  const reference::Step expected =
      reference::loss_and_gradients(model, parameters, sequences, scale);
  Parameters masters = read_all(trainer, "weight");
  reference::Moments moments{read_all(trainer, "moment1"), read_all(trainer, "moment2")};

  trainer.poison();
  const StepResult found = trainer.step(samples, learning_rate);
  const Parameters gradients = read_all(trainer, "gradient");
  const double norm = reference::adamw(model, trainer.problem().optimizer, learning_rate,
                                       found.step, gradients, masters, moments);
  CheckReport report;
  report.loss = found.loss;
  report.reference_loss = expected.loss;
  report.loss_error = relative(std::abs(found.loss - expected.loss), std::abs(expected.loss));
  report.grad_norm_error = relative(std::abs(found.grad_norm - norm), norm);
  report.tolerance = tolerance > 0 ? tolerance : derived_tolerance(trainer.problem());
  const double after = reference::loss(model, read_all(trainer, "parameter"), sequences, scale);
  trainer.poison();
  report.evaluate_error = relative(std::abs(trainer.evaluate(samples) - after), std::abs(after));

  const double floor = 1e-4 * largest_of(expected.gradients);
  const auto error = [&](const std::string& name, std::string_view kind,
                         const Parameters& against) {
    const std::vector<float> values = trainer.tensor(name, kind);
    const Matrix& wanted = against.tensors.at(name);
    return relative(largest_difference(Matrix(values.begin(), values.end()), wanted),
                    largest_element(wanted));
  };
  const auto gradient_error = [&](const Parameters& all, const std::string& name) {
    return relative(largest_difference(all.tensors.at(name), expected.gradients.tensors.at(name)),
                    std::max(floor, size_of_sum(expected.gradients, name)));
  };
  std::optional<Parameters> amplified;  // gradients
  for (const auto& [name, wanted] : expected.gradients.tensors) {
    TensorCheck tensor;
    tensor.tensor = name;
    tensor.gradient = gradient_error(gradients, name);
    tensor.tolerance = report.tolerance;
    if (tensor.gradient > report.tolerance && tolerance == 0) {
      if (!amplified) {
        // The roundings of a layer have either sign, so that sixteen amount to four.
        const Parameters near = perturbed(parameters, 4 * rounding_of_sum(trainer.problem()));
        amplified = reference::loss_and_gradients(model, near, sequences, scale).gradients;
      }
      tensor.tolerance = std::max(report.tolerance, gradient_error(*amplified, name));
    }
    tensor.parameter = error(name, "weight", masters);
    tensor.moment1 = error(name, "moment1", moments.m);
    tensor.moment2 = error(name, "moment2", moments.v);
    tensor.agrees = tensor.gradient <= tensor.tolerance && tensor.parameter <= kUpdateTolerance &&
                    tensor.moment1 <= kUpdateTolerance && tensor.moment2 <= kUpdateTolerance &&
                    storage_follows(trainer, name);
    report.tensors.push_back(std::move(tensor));
  }
  return report;
}

ElementSource random_parameters(std::uint64_t seed) {
  return [seed](const TensorSpec& spec, std::int64_t first, std::span<float> values) {
    TensorSpec noisy = spec;
    noisy.deviation =
        spec.shape.size() > 1 ? 1 / std::sqrt(static_cast<double>(spec.shape.back())) : 0.2;
    initial_values(seed, fnv1a(spec.name), first, noisy, values);
  };
}

std::vector<Sample> random_samples(const Problem& problem, std::int64_t count, std::uint64_t seed) {
  const auto vocabulary = static_cast<std::uint64_t>(problem.model.vocabulary);
  const auto length = static_cast<std::uint64_t>(problem.seq_len);
  std::uint64_t state = seed;
  std::vector<Sample> samples(static_cast<std::size_t>(count));
  for (Sample& sample : samples) {
    std::int32_t start = 0;
    for (std::int32_t t = 0; t < problem.seq_len; ++t) {
      // About three documents in each sequence.
      const bool begins = next_random(state) % length < 2;
      if (begins && problem.documents) start = t;
      const std::uint64_t token = next_random(state) % vocabulary;
      const std::uint64_t label = next_random(state) % vocabulary;
      // The first label counts, or a short sequence might teach nothing.
      const bool masked = next_random(state) % 8 == 0 && t > 0;
      sample.tokens.push_back(static_cast<std::int32_t>(token));
      sample.labels.push_back(masked ? -1 : static_cast<std::int32_t>(label));
      sample.documents.push_back(start);
    }
  }
  return samples;
}

CheckReport check_schedule(const VerifiedSchedule& schedule, const Problem& problem,
                           const CheckOptions& options) {
  const std::int64_t count = TokenLayout(schedule.schedule()).sequences();
  require_feasible(problem, count);
  const Course course{options.samples
                          ? options.samples(problem, count)
                          : CheckSamples{random_samples(problem, count, options.seed),
                                         random_samples(problem, count, options.seed + 1)},
                      random_parameters(options.seed), options.learning_rate};
  const auto compared = [&](const VerifiedSchedule& exact, const RankOptions& ranks) {
    Trainer trainer(exact, problem, ranks);
    trainer.set_parameters(course.parameters);
    return course.compared(trainer, options.tolerance);
  };
  if (!stores_bf16(schedule.schedule())) return compared(schedule, options.ranks);
  const VerifiedSchedule twin = verified(widened(schedule.schedule()));
  RankOptions on_cpus;
  on_cpus.threads = options.ranks.threads;
  CheckReport report = compared(twin, on_cpus);
  report.storage = check_storage(schedule, twin, problem, course, options);
  return report;
}

}  // namespace fpdt
