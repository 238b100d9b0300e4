// Training steps of any schedule: feeds inputs, runs the ranks, reads outputs.
//
// The trainer finds buffers by name, states by their table, and the tokens of a rank by the
// embedding. It does not know the method. It computes no mathematics: loss, gradients, clipping and
// the update are ops of the schedule.
//
//   Trainer trainer(schedule, problem, {});
//   trainer.set_parameters(initial_parameters(seed));
//   const StepResult result = trainer.step(batches.next(trainer.samples_per_step()), 1e-3);
//
// A process that holds some of the ranks (runtime/world.h) has a trainer for these. Steps,
// evaluations and tensors are then functions that all processes call together.
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
#include "fpdt/train/inputs.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

struct StepResult {
  std::int64_t step = 0;  // 1, 2, ...
  double loss = 0;        // mean over unmasked labels, and the balance
  double balance = 0;     // the part of it that balances experts
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // of all sequences, without padding
  double seconds = 0;       // of its ops: on the device, if they were recorded
  double wall_seconds = 0;  // including inputs, outputs and the trace
  Traffic sent;             // by the present ranks
};

// Memory of one space, on the rank that uses most of it.
struct MemoryUse {
  MemorySpace space = MemorySpace::device;
  Bytes arena;             // reserved
  Bytes live;              // peak, by the measured times of the ops
  Bytes touched;           // pages of the step's operands, or words that were counted
  Bytes resident;          // pages that the operating system holds
  std::string difference;  // from the schedule; "" if there is none
  // Only for a device whose words were counted: scratch that no kernel used, and gaps between
  // operands. With `touched` they add up to the arena.
  struct Untouched {
    Bytes scratch, between;
  };
  std::optional<Untouched> untouched = std::nullopt;
};

// Returns all values of a tensor.
using TensorSource = std::function<std::vector<float>(const TensorSpec&)>;

// Writes the elements of a tensor from `first` on. Many threads call it at once, each for its own
// part.
using ElementSource = std::function<void(const TensorSpec&, std::int64_t first, std::span<float>)>;

// The values of spec/initial.h.
ElementSource initial_parameters(std::uint64_t seed);

class Trainer {
 public:
  // Throws InputError when the schedule lacks something that a trainer needs, and MemoryError when
  // the machine lacks memory. The schedule must outlive the trainer.
  Trainer(const VerifiedSchedule& schedule, Problem problem, const RankOptions& options);

  // Sets the parameters and their masters; clears the moments and the count of steps. An
  // ElementSource is asked, on all threads, only for elements that present ranks hold.
  void set_parameters(const TensorSource& source);
  void set_parameters(const ElementSource& source);
  // Clears the moments and the count of steps.
  void reset_optimizer();

  // Sequences of one step: replicas x micro-batches, first replica first.
  [[nodiscard]] std::int64_t samples_per_step() const { return layout_.sequences(); }
  // Which of them this process reads: those on which one of its ranks trains. The trainer must
  // outlive the result.
  [[nodiscard]] BatchNeeds needs() const;
  // Together: the number of labels that count, each sequence counted by one process.
  [[nodiscard]] std::int64_t labels(const std::vector<Sample>& samples) const;

  // Throws InputError, before anything runs, when no label counts: weights would decay and moments
  // fade without a gradient. Throws NumericError when the loss or the norm is not finite. If the
  // norm is not finite, the update has changed nothing.
  StepResult step(const std::vector<Sample>& samples, double learning_rate) {
    return step(samples, learning_rate, nullptr);
  }
  // Takes a step, and gives a trace of each present rank.
  StepResult step_recorded(const std::vector<Sample>& samples, double learning_rate,
                           std::vector<Trace>& traces) {
    return step(samples, learning_rate, &traces);
  }
  // Takes a step and measures every space, over the ranks of all processes. It must be the first
  // step of the trainer, which is the first to touch its arenas.
  StepResult step_measured(const std::vector<Sample>& samples, double learning_rate,
                           std::vector<MemoryUse>& memory);

  // Mean loss over the unmasked labels of at most samples_per_step() sequences; 0 if there are
  // none. Changes no state.
  double evaluate(std::vector<Sample> samples);

  // Fills with NaN all memory that a step must not inherit: everything but parameters, masters and
  // moments. If a schedule depends on leftovers of an earlier step, the next step shows it.
  void poison();

  // Together: a whole tensor. `kind` is one of the state table, or "weight" for the most exact copy
  // of a parameter: its master if there is one. Preconditions: the tensor exists, and the world is
  // complete.
  [[nodiscard]] std::vector<float> tensor(std::string_view name, std::string_view kind) const;
  void set_tensor(std::string_view name, std::string_view kind, std::span<const float> values);

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Schedule& schedule() const { return ranks_.schedule(); }
  [[nodiscard]] const Ranks& ranks() const { return ranks_; }

 private:
  // The buffers that connect trainer and schedule.
  struct Ports {
    BufferIndex step = -1, tokens = -1, labels = -1, documents = -1, loss = -1, norm = -1,
                balance = -1;
  };

  StepResult step(const std::vector<Sample>& samples, double learning_rate,
                  std::vector<Trace>* traces);
  [[nodiscard]] std::vector<MemoryUse> measure(const std::vector<Trace>& traces) const;
  [[nodiscard]] bool trains_on(std::int64_t sequence) const;
  void feed(const std::vector<Sample>& samples, std::int64_t labels, double learning_rate,
            std::int64_t step);
  [[nodiscard]] double output(BufferIndex buffer) const;

  Problem problem_;
  TokenLayout layout_;
  Ports ports_;
  Ranks ranks_;
  std::int32_t threads_;  // of all present ranks together
  std::int64_t steps_done_ = 0;
};

}  // namespace fpdt
