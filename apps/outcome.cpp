// A plan reduced to its numbers.
#include "outcome.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/io/json.h"
#include "fpdt/io/problem_json.h"

#include "command.h"

namespace fpdt {

Outcome outcome(const Problem& problem, const Strategy& strategy) {
  const Plan plan = make_plan(problem, strategy);
  Outcome one{strategy,        plan.usage, within(problem, plan.usage), binding(problem, plan),
              plan.throughput, {}};
  if (!one.fits) {
    one.binding = plan.usage.device > problem.device_budget ? Binding::device : Binding::host;
  }
  const auto sequences = static_cast<double>(strategy.data_parallel * strategy.micro_batches);
  std::transform(one.throughput.begin(), one.throughput.end(), one.sequence_seconds.begin(),
                 [&](const Throughput& throughput) { return throughput.step_seconds / sequences; });
  return one;
}

std::string verdict_text(const Outcome& outcome) {
  return outcome.fits ? "fits" : fmt::format("no: {}", word(outcome.binding));
}

std::string mfu_text(const Outcome& outcome) {
  const Throughput& now = outcome.throughput[kTypicalCase];
  return fmt::format("{:.1f} / {:.1f} %", 100 * now.mfu_causal, 100 * now.mfu_full);
}

std::string outcome_fields(const Problem& problem, const Outcome& outcome) {
  const Geometry shape = geometry(problem, outcome.strategy);
  const StoredLayers stored = stored_layers(problem, outcome.strategy);
  const Throughput& now = outcome.throughput[kTypicalCase];
  const auto range = [&](double Throughput::*field) {
    return fmt::format("[{},{}]", json_number(outcome.throughput.front().*field),
                       json_number(outcome.throughput.back().*field));
  };
  return fmt::format(
      R"("verdict":"{}","binding":"{}","method":"{}","chunk_tokens":{},"chunks":{},)"
      R"("sequence_parallel":{},"data_parallel":{},"checkpoint_every":{},)"
      R"("layers_storing_attention":{},"layers_storing_everything":{},"step_seconds":{},)"
      R"("step_seconds_slow_fast":{},"sequence_seconds":{},"tokens_per_second_per_gpu":{},)"
      R"("mfu_causal":{},"mfu_causal_slow_fast":{},"mfu_full":{},"mfu_full_slow_fast":{},"hfu":{},)"
      R"("device_peak_bytes":{},"outside_arena_bytes":{},"outside_workspace_bytes":{},)"
      R"("host_peak_bytes_per_node":{},"strategy":{},"settings":{})",
      outcome.fits ? "fits" : "infeasible", word(outcome.binding),
      shape.chunks == 1 ? "ulysses" : "fpdt", shape.chunk_rows, shape.chunks,
      shape.sequence_parallel, shape.data_parallel, outcome.strategy.fpdt.checkpoint_every,
      stored.attention, stored.everything, json_number(now.step_seconds),
      range(&Throughput::step_seconds), json_number(outcome.sequence_seconds[kTypicalCase]),
      json_number(now.tokens_per_second_per_gpu), json_number(now.mfu_causal),
      range(&Throughput::mfu_causal), json_number(now.mfu_full), range(&Throughput::mfu_full),
      json_number(now.hfu), outcome.usage.arena.value, problem.cluster.outside_bytes().value,
      problem.cluster.outside.workspace.value, outcome.usage.host_node.value,
      json_string(in_words(problem, outcome.strategy)), strategy_json(outcome.strategy));
}

}  // namespace fpdt
