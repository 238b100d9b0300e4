// Training steps of any schedule: feeds inputs, runs the ranks, reads outputs.
//
// The trainer knows buffers by their names and states by their table, never the method. It computes
// nothing of the mathematics: loss, gradients, clipping and the update are ops of the schedule.
//
//   Trainer trainer(schedule, problem, strategy, {});
//   trainer.set_parameters(initial_parameters(seed));
//   const StepResult result = trainer.step(batches.next(trainer.samples_per_step()), 1e-3);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/strategy.h"
#include "fpdt/train/batches.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

struct StepResult {
  std::int64_t step = 0;  // 1, 2, ...
  double loss = 0;        // mean over unmasked labels
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // of all sequences, without padding
  double seconds = 0;       // of its ops: on the device, where they were recorded
  double wall_seconds = 0;  // with inputs, outputs and the trace
};

// Bytes of one space on the rank that has most of them.
struct MemoryUse {
  MemorySpace space = MemorySpace::device;
  Bytes arena;             // reserved
  Bytes live;              // most at any moment, by the times at which ops ran
  Bytes touched;           // pages that the step's operands lie in, or words that were counted
  Bytes resident;          // pages that the operating system holds
  std::string difference;  // from the schedule; "" when they agree
  // On a device whose words were counted: scratch that no kernel used, and gaps between operands.
  // Together with `touched` they make up the arena.
  struct Untouched {
    Bytes scratch, between;
  };
  std::optional<Untouched> untouched = std::nullopt;
};

// The whole values of a tensor.
using TensorSource = std::function<std::vector<float>(const TensorSpec&)>;

// Some of its elements, those from `first` on; asked by many threads at once.
using ElementSource = std::function<void(const TensorSpec&, std::int64_t first, std::span<float>)>;

// Values of spec/initial.h.
ElementSource initial_parameters(std::uint64_t seed);

class Trainer {
 public:
  // InputError when the schedule lacks what a trainer needs, MemoryError when the machine lacks
  // memory. The schedule outlives the trainer.
  Trainer(const VerifiedSchedule& schedule, Problem problem, const Strategy& strategy,
          const RankOptions& options);

  // Parameters and their masters; clears the moments and the count of steps. From elements: only
  // those that present ranks hold, on all threads.
  void set_parameters(const TensorSource& source);
  void set_parameters(const ElementSource& source);

  // Sequences of one step: replicas x micro-batches, those of the first replica first.
  [[nodiscard]] std::int64_t samples_per_step() const;

  // InputError, before anything is done, when no label counts: weights would decay and moments fade
  // without a gradient. NumericError when loss or norm is not finite; where the norm is not, the
  // update changed nothing.
  StepResult step(const std::vector<Sample>& samples, double learning_rate) {
    return step(samples, learning_rate, nullptr);
  }
  // The same, with a trace of each present rank.
  StepResult step_recorded(const std::vector<Sample>& samples, double learning_rate,
                           std::vector<Trace>& traces) {
    return step(samples, learning_rate, &traces);
  }
  // The same, and measures every space; for the first step of a trainer, which touches its arenas
  // first.
  StepResult step_measured(const std::vector<Sample>& samples, double learning_rate,
                           std::vector<MemoryUse>& memory);

  // Mean loss over the unmasked labels of at most samples_per_step() sequences, 0 without any;
  // changes no state.
  double evaluate(std::vector<Sample> samples);

  // NaN in all memory that no step may inherit: everything but parameters, masters and moments. A
  // schedule that depends on what an earlier step left there shows at the next.
  void poison();

  // A whole tensor; kind as in the state table, and "weight" for the most exact copy of a
  // parameter: its master where there is one. Preconditions: it exists, and all ranks are here.
  [[nodiscard]] std::vector<float> tensor(std::string_view name, std::string_view kind) const;
  void set_tensor(std::string_view name, std::string_view kind, std::span<const float> values);

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Schedule& schedule() const { return ranks_.schedule(); }
  [[nodiscard]] const Ranks& ranks() const { return ranks_; }

 private:
  // The buffers that trainer and schedule agree on.
  struct Ports {
    BufferIndex step = -1, tokens = -1, labels = -1, documents = -1, loss = -1, norm = -1;
  };

  StepResult step(const std::vector<Sample>& samples, double learning_rate,
                  std::vector<Trace>* traces);
  [[nodiscard]] std::vector<MemoryUse> measure(const std::vector<Trace>& traces) const;
  void feed(const std::vector<Sample>& samples, double learning_rate, std::int64_t step);
  [[nodiscard]] double output(BufferIndex buffer) const;
  [[nodiscard]] const State& state(std::string_view name, std::string_view kind) const;

  Problem problem_;
  Geometry geometry_;
  std::int64_t micro_batches_;
  Ports ports_;
  Ranks ranks_;
  std::int32_t threads_;  // of all present ranks
  std::int64_t steps_done_ = 0;
};

}  // namespace fpdt
