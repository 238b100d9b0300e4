// Blocks of layers and gathers, and the order in which a step calls them.
//
// With segments of k layers, layers k*s .. k*s+k-1 form segment s. Only the input of its first
// layer is stored across the step; backward of a segment first repeats forward through its first
// k-1 layers.
#include "fpdt/plan/lowering/step.h"

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

// Numbers the gathers that a layer reads from, over the step. Forward gathers layers 0 .. L-1 once
// a micro-batch. Backward gathers them again in reverse; with k = 1 it finds the last layer still
// gathered.
struct GatherCount {
  std::int64_t layers, every;

  [[nodiscard]] std::int64_t segments() const { return layers / every; }
  [[nodiscard]] std::int64_t of_micro_batch() const {
    return every == 1 ? 2 * layers - 1 : layers + segments() * (2 * every - 1);
  }
  [[nodiscard]] Version forward() const { return Version::at(0, 1, of_micro_batch()); }
  // Layer l of segment s, repeated: L + (T-1-s)(2k-1) + (l - k*s).
  [[nodiscard]] Version rerun() const {
    const std::int64_t turn = 2 * every - 1;
    return Version::at(layers + (segments() - 1) * turn, 1, of_micro_batch(), -turn - every);
  }
  // Layer l of segment s, backward: k-1 repeats before it, then (k-1) - (l - k*s).
  [[nodiscard]] Version backward() const {
    if (every == 1) return Version::at(2 * layers - 2, -1, of_micro_batch());
    const std::int64_t turn = 2 * every - 1;
    return Version::at(layers + (segments() - 1) * turn + 2 * (every - 1), -1, of_micro_batch(),
                       -turn + every);
  }
};

}  // namespace

void StepLowering::emit_gathers() {
  if (!states_.gathers()) return;
  const GatherCount count{model_.layers, strategy_.checkpoint_every()};
  const auto gather = [&](const std::string& block, const std::vector<std::string>& names,
                          const Version& use) {
    context_.begin_block(block);
    states_.emit_gather(builder_, names, use, "gather");
    builder_.end_block();
  };
  gather("gather", states_.layer_names(), count.forward());
  gather("gather_backward", states_.layer_names(), count.backward());
  if (strategy_.checkpoint_every() > 1)
    gather("gather_rerun", states_.layer_names(), count.rerun());
  std::vector<std::string> embed{"embed.weight"};
  if (states_.has("positions.weight")) embed.push_back("positions.weight");
  std::vector<std::string> head{"final_norm.weight"};
  if (states_.has("final_norm.bias")) head.push_back("final_norm.bias");
  if (!model_.tied_embeddings) head.push_back("head.weight");
  gather("gather_embed", embed, Version::at(0, 0, 1));
  gather("gather_head", head, Version::at(0, 0, 1));
}

void StepLowering::emit_layers() {
  const std::int64_t every = strategy_.checkpoint_every();
  const std::int64_t layers = model_.layers;
  const GatherCount count{layers, every};
  if (every == 1) {
    const Stream input{&context_.layer_input, Version::at(0, 1, layers + 1)};
    const Stream output{&context_.layer_input, Version::at(1, 1, layers + 1)};
    for (Homes& homes : context_.homes) {
      layers_.forward_block("forward" + homes.suffix, homes, count.forward(), input, output);
      layers_.backward_block("backward" + homes.suffix, homes, count.backward(), input);
    }
    return;
  }
  const std::int64_t segments = layers / every;
  const std::int64_t inside = every - 1;
  const Stream checkpoint{&context_.layer_input, Version::at(0, 0, segments + 1, 1)};
  const Stream next_checkpoint{&context_.layer_input, Version::at(1, 0, segments + 1, 1)};
  // Input of layer l of segment s (l > k*s); numbers run over forward and repeats.
  const Instance forward_inside = Version::at(-1, 1, 2 * segments * inside, -1);
  const Instance rerun_inside =
      Version::at((2 * segments - 1) * inside - 1, 1, 2 * segments * inside, -inside - every);
  const auto plus_one = [](Instance instance) {
    ++instance.offset;
    return instance;
  };
  const Stream forward_in{&context_.segment_input, forward_inside};
  const Stream forward_out{&context_.segment_input, plus_one(forward_inside)};
  const Stream rerun_in{&context_.segment_input, rerun_inside};
  const Stream rerun_out{&context_.segment_input, plus_one(rerun_inside)};
  Homes& homes = context_.homes.front();
  Homes& repeated = context_.homes.back();  // other homes where repeats store attention output
  layers_.forward_block("forward_first", homes, count.forward(), checkpoint, forward_out);
  layers_.forward_block("forward_last", homes, count.forward(), forward_in, next_checkpoint);
  layers_.forward_block("rerun_first", repeated, count.rerun(), checkpoint, rerun_out);
  if (every > 2) {
    layers_.forward_block("forward_middle", homes, count.forward(), forward_in, forward_out);
    layers_.forward_block("rerun_middle", repeated, count.rerun(), rerun_in, rerun_out);
  }
  const bool stored = context_.homes.size() > 1;
  layers_.backward_block("backward_first", repeated, count.backward(), checkpoint);
  if (every > 2 || !stored) {
    layers_.backward_block("backward_inside", repeated, count.backward(), rerun_in);
  }
  if (stored) layers_.backward_block("backward_last", homes, count.backward(), rerun_in);
}

void StepLowering::call_forward(std::vector<Call>& calls, std::int64_t micro_batch) {
  const std::int64_t layers = model_.layers;
  const std::int64_t every = strategy_.checkpoint_every();
  const auto gather = [&](std::int64_t layer) {
    if (states_.gathers() && layer < layers) {
      builder_.call(calls, "gather", layer, micro_batch, layer / every);
    }
  };
  gather(0);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    gather(layer + 1);
    std::string block = "forward";
    if (every > 1) {
      const std::int64_t place = layer % every;
      block += place == 0 ? "_first" : (place == every - 1 ? "_last" : "_middle");
    } else {
      for (const Homes& homes : context_.homes) {
        if (layer >= homes.first && layer < homes.first + homes.count) block += homes.suffix;
      }
    }
    builder_.call(calls, block, layer, micro_batch, layer / every);
  }
}

void StepLowering::call_backward(std::vector<Call>& calls, std::int64_t micro_batch) {
  struct Visit {
    std::string gather, block;
    std::int64_t layer;
  };
  const std::int64_t every = strategy_.checkpoint_every();
  std::vector<Visit> visits;
  for (std::int64_t segment = model_.layers / every - 1; segment >= 0; --segment) {
    for (std::int64_t place = 0; place + 1 < every; ++place) {
      visits.push_back(
          {"gather_rerun", place == 0 ? "rerun_first" : "rerun_middle", segment * every + place});
    }
    for (std::int64_t place = every - 1; place >= 0; --place) {
      const std::int64_t layer = segment * every + place;
      std::string block = "backward";
      if (every > 1) {
        const bool last = context_.homes.size() > 1 && place == every - 1;
        block += place == 0 ? "_first" : (last ? "_last" : "_inside");
      } else {
        for (const Homes& homes : context_.homes) {
          if (layer >= homes.first && layer < homes.first + homes.count) block += homes.suffix;
        }
      }
      visits.push_back({"gather_backward", block, layer});
    }
  }
  const auto gather = [&](std::size_t i) {
    if (!states_.gathers() || i >= visits.size()) return;
    builder_.call(calls, visits[i].gather, visits[i].layer, micro_batch, visits[i].layer / every);
  };
  if (every > 1) gather(0);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    gather(i + 1);
    builder_.call(calls, visits[i].block, visits[i].layer, micro_batch, visits[i].layer / every);
  }
}

StepLowering::StepLowering(Context& context)
    : LoweringPart(context),
      layers_(context),
      ends_(context),
      documents_(declare_tokens(Holds::documents, shape_.padded_tokens)),
      tokens_(declare_tokens(Holds::tokens, shape_.local_tokens())),
      labels_(declare_tokens(Holds::labels, shape_.local_tokens())) {}

StepLowering::Rows StepLowering::declare_tokens(Holds holds, std::int64_t rows) {
  const std::string name(word(holds));
  const auto declare = [&](const std::string& of, MemorySpace space, Role role,
                           std::int64_t slots) {
    return builder_.declare(
        {of, space, role, Category::tokens, Dtype::i32, {rows}, slots, kUnplaced});
  };
  return {declare(name + "_input", MemorySpace::host, Role::input, strategy_.micro_batches),
          declare(name, MemorySpace::device, Role::temporary, 1)};
}

BufferIndex StepLowering::fetch(Holds holds, const Rows& rows) {
  const BufferIndex input = builder_.use(rows.input);
  const BufferIndex here = builder_.use(rows.here);
  builder_.emit(
      fmt::format("fetch_{}", word(holds)), LaneKind::h2d,
      Copy{{input, Version::at(0, 0, 1), 0, -1}, {{here, Version::at(0, 0, 1), 0, -1}, false}});
  return here;
}

// The only device buffers that grow with S.
void StepLowering::emit_tokens() {
  context_.begin_block("tokens");
  if (problem_.documents) context_.documents = fetch(Holds::documents, documents_);
  context_.tokens = fetch(Holds::tokens, tokens_);
  context_.labels = fetch(Holds::labels, labels_);
  builder_.end_block();
  feed_tokens();
}

// Replicas are runs of ranks, of which each holds its part of every chunk.
void StepLowering::feed_tokens() {
  const RankExpression replica{0,
                               {shape_.data_parallel > 1 ? 1 : 0, 0, ranks_, shape_.data_parallel}};
  const auto feed = [&](const Rows& to, Holds holds, std::int64_t row, std::int64_t rows,
                        const RankExpression& first) {
    builder_.schedule.feeds.push_back({builder_.use(to.input), holds, row, rows, first, replica});
  };
  for (const Holds holds : {Holds::tokens, Holds::labels}) {
    const Rows& to = holds == Holds::tokens ? tokens_ : labels_;
    for (std::int64_t c = 0; c < shape_.chunks; ++c) {
      feed(to, holds, shape_.local_first(c), shape_.local_rows(c), token_first(c));
    }
  }
  if (problem_.documents) feed(documents_, Holds::documents, 0, shape_.padded_tokens, {});
}

void StepLowering::emit_programs() {
  Schedule& schedule = builder_.schedule;
  const auto call = [&](std::vector<Call>& calls, std::string_view block, std::int64_t layer = 0,
                        std::int64_t micro_batch = 0) {
    builder_.call(calls, block, layer, micro_batch);
  };
  const std::int64_t layers = model_.layers;
  call(schedule.train, "begin");
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "begin_layer", l);
  call(schedule.evaluate, "begin_evaluate");
  for (std::int64_t b = 0; b < strategy_.micro_batches; ++b) {
    for (auto* calls : {&schedule.train, &schedule.evaluate}) {
      call(*calls, "tokens", 0, b);
      if (states_.gathers()) call(*calls, "gather_embed", 0, b);
      call(*calls, "embed", 0, b);
      call_forward(*calls, b);
      if (states_.gathers()) call(*calls, "gather_head", 0, b);
    }
    call(schedule.train, "head", 0, b);
    call(schedule.evaluate, "head_evaluate", 0, b);
    call_backward(schedule.train, b);
    call(schedule.train, "embed_backward", 0, b);
  }
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "grad_norm_layer", l);
  call(schedule.train, "grad_norm");
  for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, "optimizer_layer", l);
  call(schedule.train, "optimizer");
  call(schedule.train, "finish");
  call(schedule.evaluate, "finish_evaluate");
}

Schedule StepLowering::lower() {
  emit_tokens();
  states_.emit_blocks(builder_);
  emit_gathers();
  ends_.emit_embed();
  emit_layers();
  ends_.emit_head("head", true);
  ends_.emit_head("head_evaluate", false);
  ends_.emit_embed_backward();
  emit_programs();
  return std::move(builder_.finish());
}

Schedule lower_ops(const Problem& problem, const Strategy& strategy) {
  Context context(problem, strategy, fused_attention(problem, strategy));
  context.states.add_table(context.builder);
  return StepLowering(context).lower();
}

Schedule lower_without_states(const Problem& problem, const Strategy& strategy) {
  return lower_without_states(problem, strategy, fused_attention(problem, strategy));
}

Schedule lower_without_states(const Problem& problem, const Strategy& strategy, bool fused) {
  Context context(problem, strategy, fused);
  return StepLowering(context).lower();
}

std::vector<Buffer> declared_buffers(const Problem& problem, const Strategy& strategy, bool fused) {
  Context context(problem, strategy, fused);
  const StepLowering parts(context);
  return std::move(context.builder.declared());
}

}  // namespace fpdt
