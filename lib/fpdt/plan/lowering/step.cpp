// Blocks of layers and gathers, and the order in which a step calls them.
//
// Backward of a segment first repeats forward through its layers but the last.
#include "fpdt/plan/lowering/step.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

// Numbers the gathers that a layer reads from, over the step. Forward gathers layers 0 .. L-1 once
// a micro-batch. Backward gathers them again in reverse; with segments of one layer it finds the
// last layer still gathered. Segments are numbered as if all were as long as the longest: shorter
// ones leave gaps, but gathers in a row have numbers of different parity, and so different slots.
struct GatherCount {
  std::int64_t layers, segments, longest;

  [[nodiscard]] Version forward() const {
    return Version::at(0, 1, longest == 1 ? 2 * layers - 1 : layers + segments * each());
  }
  [[nodiscard]] Version rerun() const { return in_segment(0, 1); }
  [[nodiscard]] Version backward() const {
    if (longest == 1) return Version::at(2 * layers - 2, -1, 2 * layers - 1);
    return in_segment(2 * longest - 2, -1);
  }

 private:
  // Gathers for the backward of a segment.
  [[nodiscard]] std::int64_t each() const { return 2 * longest - 1; }
  [[nodiscard]] Version in_segment(std::int64_t first, std::int64_t place) const {
    return Version::at(layers + (segments - 1) * each() + first, 0, layers + segments * each(),
                       -each(), place);
  }
};

}  // namespace

void StepLowering::emit_gathers() {
  if (!states_.gathers_layers()) return;
  const std::int64_t longest = longest_segment(strategy_);
  const GatherCount count{model_.layers, context_.segments(), longest};
  const auto gather = [&](const std::string& block, const std::vector<std::string>& names,
                          const Version& use) {
    context_.begin_block(block);
    states_.emit_gather(builder_, names, use, "gather");
    builder_.end_block();
  };
  for (const States::Run& run : states_.runs()) {
    states_.enter(run);
    gather("gather" + run.suffix, run.names, count.forward());
    gather("gather_backward" + run.suffix, run.names, count.backward());
    if (longest > 1) gather("gather_rerun" + run.suffix, run.names, count.rerun());
  }
  if (!states_.gathers()) return;
  std::vector<std::string> embed{"embed.weight"};
  if (states_.has("positions.weight")) embed.push_back("positions.weight");
  std::vector<std::string> head{"final_norm.weight"};
  if (states_.has("final_norm.bias")) head.push_back("final_norm.bias");
  if (!model_.tied_embeddings) head.push_back("head.weight");
  gather("gather_embed", embed, Version::at(0, 0, 1));
  gather("gather_head", head, Version::at(0, 0, 1));
}

LayerBlock StepLowering::block_of(std::int64_t layer, Visit visit) {
  const std::int64_t longest = longest_segment(strategy_);
  const std::int64_t segments = context_.segments();
  const LayerPlace& at = context_.places[index(layer)];
  const GatherCount count{model_.layers, segments, longest};
  LayerBlock block;
  block.visit = visit;
  block.kind = &model_.kind_of(layer);
  block.homes = &context_.homes[at.layer_class];
  block.input = context_.input_of(at, visit);
  if (visit != Visit::backward) block.output = context_.output_of(at, visit);
  switch (visit) {
    case Visit::forward:
      block.weights = count.forward();
      break;
    case Visit::rerun:
      block.weights = count.rerun();
      break;
    case Visit::backward:
      block.weights = count.backward();
      block.dy = context_.output_gradient_of(at);
      block.dx = context_.input_gradient_of(at);
      block.found = !at.last() && block.homes->choice.recompute != Recompute::from_input;
      break;
  }
  return block;
}

std::string StepLowering::word_of(std::int64_t layer, Visit visit) const {
  const LayerPlace& at = context_.places[index(layer)];
  std::string text = visit == Visit::forward ? "forward"
                     : visit == Visit::rerun ? "rerun"
                                             : "backward";
  if (at.length > 1) {
    const char* between = visit == Visit::backward ? "_inside" : "_middle";
    text += at.first() ? "_first" : at.last() ? "_last" : between;
  }
  const std::string& kind = model_.kind_of(layer).name;
  if (!kind.empty()) text.append(1, '_').append(kind);
  return text + context_.homes[at.layer_class].suffix;
}

// The block of the layer's run.
std::string StepLowering::of_run(std::string_view block, std::int64_t layer) const {
  return std::string(block) + states_.run_of(layer).suffix;
}

// Emits a block for each layer and visit, unless it is the same as one of an earlier layer.
void StepLowering::emit_layers() {
  struct Emitted {
    std::string name;
    LayerBlock block;
  };
  std::vector<Emitted> emitted;
  const auto emit = [&](std::int64_t layer, Visit visit) {
    const LayerBlock block = block_of(layer, visit);
    std::string& name = name_of(visit, layer);
    for (const Emitted& known : emitted) {
      if (known.block == block) name = known.name;
    }
    if (!name.empty()) return;
    const std::string word = word_of(layer, visit);
    const auto taken = std::count_if(emitted.begin(), emitted.end(), [&](const Emitted& known) {
      return known.name == word || known.name.rfind(word + "_to", 0) == 0;
    });
    // Another block of such layers hands on to other homes, or has its input there.
    name = taken == 0 ? word : fmt::format("{}_to{}", word, taken);
    emitted.push_back({name, block});
    states_.enter(states_.run_of(layer));
    layers_.emit(name, block);
  };
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
    emit(layer, Visit::forward);
    if (!context_.places[index(layer)].last()) emit(layer, Visit::rerun);
    emit(layer, Visit::backward);
  }
}

void StepLowering::call_forward(std::vector<Call>& calls, std::int64_t micro_batch) {
  const std::int64_t layers = model_.layers;
  const auto gather = [&](std::int64_t layer) {
    if (states_.gathers_layers() && layer < layers) {
      builder_.call(calls, of_run("gather", layer), layer, micro_batch,
                    context_.places[index(layer)]);
    }
  };
  gather(0);
  // Where ranks exchange heads or rows, the next layer's weights come when this one has done so:
  // they would hold that up, and its feed-forward hides them. Elsewhere they come first, where the
  // layer that frees their slot is as far back for every class of layers.
  const bool exchanges = problem_.ranks() > shape_.data_parallel;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (!exchanges) gather(layer + 1);
    builder_.call(calls, name_of(Visit::forward, layer), layer, micro_batch,
                  context_.places[index(layer)]);
    if (exchanges) gather(layer + 1);
  }
}

void StepLowering::call_backward(std::vector<Call>& calls, std::int64_t micro_batch) {
  struct Step {
    Visit visit;
    std::int64_t layer;
  };
  std::vector<Step> steps;
  for (std::int64_t end = model_.layers; end > 0;) {
    const std::int64_t first = end - context_.places[index(end - 1)].length;
    for (std::int64_t layer = first; layer + 1 < end; ++layer) {
      steps.push_back({Visit::rerun, layer});
    }
    for (std::int64_t layer = end - 1; layer >= first; --layer) {
      steps.push_back({Visit::backward, layer});
    }
    end = first;
  }
  const auto gather = [&](std::size_t i) {
    if (!states_.gathers_layers() || i >= steps.size()) return;
    const bool rerun = steps[i].visit == Visit::rerun;
    const std::int64_t layer = steps[i].layer;
    builder_.call(calls, of_run(rerun ? "gather_rerun" : "gather_backward", layer), layer,
                  micro_batch, context_.places[index(layer)]);
  };
  if (longest_segment(strategy_) > 1) gather(0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    gather(i + 1);
    if (steps[i].visit == Visit::backward && states_.resumes_sums()) {
      const char* const sums = micro_batch == 0 ? "begin_sums" : "resume_sums";
      builder_.call(calls, of_run(sums, steps[i].layer), steps[i].layer, micro_batch);
    }
    builder_.call(calls, name_of(steps[i].visit, steps[i].layer), steps[i].layer, micro_batch,
                  context_.places[index(steps[i].layer)]);
  }
}

StepLowering::StepLowering(Context& context)
    : LoweringPart(context),
      layers_(context),
      ends_(context),
      documents_(declare_tokens(Holds::documents, shape_.padded_tokens)),
      tokens_(declare_tokens(Holds::tokens, shape_.local_tokens())),
      labels_(declare_tokens(Holds::labels, shape_.local_tokens())) {
  for (std::vector<std::string>& of_visit : names_) of_visit.resize(index(model_.layers));
}

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
  const auto call_layers = [&](std::string_view block) {
    for (std::int64_t l = 0; l < layers; ++l) call(schedule.train, of_run(block, l), l);
  };
  if (states_.begins_layers()) call_layers("begin_layer");
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
  call_layers("grad_norm_layer");
  call(schedule.train, "grad_norm");
  call_layers("optimizer_layer");
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
  Context context(problem, strategy, library_tiles(problem, strategy));
  context.states.add_table(context.builder);
  return StepLowering(context).lower();
}

Schedule lower_without_states(const Problem& problem, const Strategy& strategy) {
  return lower_without_states(problem, strategy, library_tiles(problem, strategy));
}

Schedule lower_without_states(const Problem& problem, const Strategy& strategy,
                              const std::vector<LibraryTiles>& library) {
  Context context(problem, strategy, library);
  context.builder.names_ops = false;
  return StepLowering(context).lower();
}

Schedule sketch(const Problem& problem, const Strategy& strategy,
                const std::vector<LibraryTiles>& library, ProgramBuilder& uses) {
  Context context(problem, strategy, library);
  context.builder.names_ops = false;
  context.builder.sketch = &uses;
  return StepLowering(context).lower();
}

std::vector<Buffer> declared_buffers(const Problem& problem, const Strategy& strategy,
                                     const std::vector<LibraryTiles>& library) {
  Context context(problem, strategy, library);
  const StepLowering parts(context);
  return std::move(context.builder.declared());
}

}  // namespace fpdt
