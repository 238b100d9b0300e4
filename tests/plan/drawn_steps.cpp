// Draws every choice of a few values.
#include "drawn_steps.h"

#include <initializer_list>
#include <random>

#include "fpdt/spec/choices.h"
#include "fpdt/spec/layer_places.h"

#include "problems.h"

namespace fpdt {
namespace {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }

 private:
  std::mt19937 random_;
};

// Norms after each half; a window in some layers, or in all.
void draw_kinds(Draw& draw, ModelSpec& model, std::int64_t chunk_tokens) {
  model.post_norms = draw.of({true, false}) && !model.bias && !model.parallel_residual;
  if (draw.of({1, 2, 3}) == 1 && !model.post_norms && !model.bias && !model.parallel_residual) {
    model.experts = draw.of<std::int64_t>({2, 5});
    model.active_experts = draw.of<std::int64_t>({1, 2});
    model.balance_loss = model.experts == 5 ? 0.1 : 0;
  }
  if (draw.of({1, 2, 3}) > 1) return;
  model.kinds.front().window = draw.of({std::int64_t{1}, std::int64_t{2}, chunk_tokens,
                                        chunk_tokens + 1, 3 * chunk_tokens, std::int64_t{1000}});
  if (model.layers == 1 || draw.of({true, false})) return;
  model.kinds.push_back(model.kinds.front());
  model.kinds.front().name = "window";
  model.kinds.back().name = "full";
  model.kinds.back().window = 0;
  model.pattern = draw.of({true, false}) && model.layers > 2 ? std::vector<std::int64_t>{0, 0, 1}
                                                             : std::vector<std::int64_t>{0, 1};
}

}  // namespace

DrawnStep few_tokens(std::uint32_t seed) {
  Draw draw(seed);
  ModelSpec model = draw.of({0, 1}) == 0 ? test::tiny_llama() : test::tiny_gpt();
  model.heads = model.kv_heads = 12;
  model.feed_forward = 72;
  model.head_dim = 2;
  model.layers = draw.of({1, 2, 3, 4});
  model.vocabulary = draw.of({61, 509});
  model.tied_embeddings = draw.of({true, false});
  const std::int64_t ranks = draw.of({1, 2, 3, 4, 6});
  const std::int64_t tokens = ranks * draw.of({1, 2, 5});
  Strategy strategy = test::tiny_strategy(ranks * draw.of({1, 2}));
  strategy.zero = draw.of({0, 1, 2, 3});
  strategy.micro_batches = draw.of({1, 2, 3});
  strategy.mesh.replicas = draw.of({std::int64_t{1}, ranks, ranks % 2 == 0 ? ranks / 2 : 1});
  strategy.storage = draw.of({Storage::f32, Storage::bf16});
  strategy.extent = draw.of({Extent::chunk, Extent::whole});
  auto homes = static_cast<std::size_t>(draw.of({0, 1, 2, 3}));
  strategy.copies.overlap_all_to_all = draw.of({true, false});
  strategy.layer_classes.front().recompute =
      draw.of({Recompute::from_input, Recompute::keep_attention, Recompute::keep_all});
  strategy.layer_classes.front().keep.fill(draw.of({0.0, 1.0}));
  if (model.layers % 2 == 0 && draw.of({true, false}) &&
      strategy.layer_classes.front().recompute != Recompute::keep_all) {
    strategy.segments = {2};
  }
  const std::int64_t sequence_ranks = ranks / strategy.mesh.replicas;
  if (sequence_ranks > 1 && draw.of({true, false})) {
    strategy.mesh.ring = sequence_ranks;
    strategy.keys = draw.of({Keys::gathered, Keys::ring});
  } else if (sequence_ranks > 1 && draw.of({true, false})) {
    strategy.mesh.tensor = draw.of({sequence_ranks, std::int64_t{sequence_ranks % 2 == 0 ? 2 : 1}});
    model.kv_heads = draw.of({12, 6, 3, 1});
    if (!divides_layers(model, strategy.mesh.tensor) || !divides_heads(model, sequence_ranks)) {
      model.kv_heads = 12;
    }
    strategy.extent = Extent::chunk;
  }
  Problem problem = test::tiny_problem(model, ranks, tokens);
  do {
    strategy.keep = kStateHomes[homes];
  } while (!check(problem, strategy).empty() && homes-- > 0);
  strategy.gradients = draw.of({Storage::f32, Storage::bf16});
  strategy.layer_gradients = draw.of({LayerGradients::apart, LayerGradients::in_inputs});
  strategy.tiles.backward_order = draw.of({BackwardOrder::q_outer, BackwardOrder::kv_outer});
  if (!check(problem, strategy).empty()) strategy.gradients = Storage::f32;
  return {std::move(problem), strategy};
}

// Each tensor has a fraction of its own on the device, in more chunks than a thumbnail has.
DrawnStep many_chunks(std::uint32_t seed) {
  Draw draw(seed);
  auto [problem, strategy] = few_tokens(seed);
  const std::int64_t ranks = problem.ranks() / strategy.mesh.replicas;
  strategy.tiles.chunk_tokens = ranks * draw.of({1, 2});
  problem.seq_len = ranks * draw.of({5, 6, 7, 9, 12, 13});
  if (problem.model.learned_positions > 0) problem.model.learned_positions = problem.seq_len;
  if (draw.of({1, 2, 3}) == 1) strategy.layout = Layout::zigzag;
  strategy.tiles.backward_order = draw.of({BackwardOrder::kv_outer, BackwardOrder::q_outer});
  strategy.tiles.serpentine = draw.of({true, false});
  strategy.tiles.ffn_rows = draw.of({0, 1});
  strategy.tiles.loss_rows = draw.of({0, 1});
  strategy.tiles.loss_vocabulary = draw.of({0, 20});
  strategy.copies.prefetch_depth = draw.of({0, 1, 2, 3, 5});
  strategy.copies.duplex = draw.of({true, false});
  if (draw.of({1, 2, 3}) == 1) {
    problem.model.layers = draw.of({3, 4, 5, 7, 10, 15});
    strategy.segments = draw.of<std::vector<std::int64_t>>(
        {{3, 1}, {2, 1}, {1, 2}, {5}, {3}, {5, 5, 1}, {3, 6, 1}});
  }
  if (problem.model.layers > 1 && draw.of({true, false})) {
    strategy.layer_classes.push_back(strategy.layer_classes.front());
    strategy.layer_classes.front().layers = 1 + draw.of({0, 1, 2}) % (problem.model.layers - 1);
    strategy.layer_classes.back().recompute =
        draw.of({Recompute::from_input, Recompute::keep_attention, Recompute::keep_all});
  }
  const std::initializer_list<double> fractions{0.0, 0.0, 0.2, 0.5, 0.8, 1.0, 1.0};
  for (std::size_t k = 0; k < kTensorClasses; ++k) {
    const bool stream = k == static_cast<std::size_t>(TensorClass::layer_gradient);
    const double all = draw.of(fractions);
    for (LayerClass& one : strategy.layer_classes) one.keep[k] = stream ? all : draw.of(fractions);
  }
  strategy.tiles.long_tiles = draw.of({true, false});
  for (LayerClass& one : strategy.layer_classes) {
    const std::int64_t chunks = geometry(problem, strategy).chunks;
    const std::int64_t last = longest_segment(strategy) > 1 ? chunks : chunks - 1;
    one.first_stored_chunk = std::min(last, draw.of<std::int64_t>({0, 0, 0, 1, 2, 3, 4, 6, 8, 99}));
    if (strategy.extent == Extent::whole && one.first_stored_chunk < chunks) {
      one.first_stored_chunk = 0;
    }
  }
  strategy.layer_gradients = draw.of({LayerGradients::apart, LayerGradients::in_inputs});
  strategy.queries = draw.of({Queries::stored, Queries::again});
  draw_kinds(draw, problem.model, strategy.tiles.chunk_tokens);
  if (!check(problem, strategy).empty()) {
    problem.model.experts = problem.model.active_experts = 0;
    problem.model.balance_loss = 0;
  }
  return {problem, canonical(problem, strategy)};
}

// Classes store attention from different chunks on.
DrawnStep many_layers(std::uint32_t seed) {
  Draw draw(seed);
  ModelSpec model = test::tiny_llama();
  model.layers = draw.of({12, 18, 26});
  const std::int64_t ranks = draw.of({1, 2});
  Strategy strategy = test::tiny_strategy(ranks * 2);
  Problem problem = test::tiny_problem(model, ranks, strategy.tiles.chunk_tokens * 4);
  strategy.segments.clear();
  const std::int64_t longest = draw.of({1, 2, 3, 4, 5});
  for (std::int64_t length = longest; length > 0; length -= draw.of({1, 1, 2})) {
    const int equal = draw.of({1, 2, 3});
    for (int i = 0; i < equal; ++i) strategy.segments.push_back(length);
  }
  if (draw.of({true, false})) strategy.segments.push_back(1);
  LayerClass& first = strategy.layer_classes.front();
  first.recompute = Recompute::keep_attention;
  for (double& kept : first.keep) kept = draw.of({0.0, 0.0, 0.5, 1.0});
  strategy.layer_classes.assign(3, first);
  for (std::size_t c = 0; c < 3; ++c) {
    LayerClass& one = strategy.layer_classes[c];
    if (c < 2) one.layers = draw.of({1, 2, 3, 4, 5});
    one.first_stored_chunk = draw.of({0, 1, 2, longest > 1 ? 4 : 3});
  }
  strategy.zero = draw.of({0, 2, 3});
  strategy.keep = kStateHomes[draw.of<std::size_t>({0, 1, 2, 3})];
  if (!check(problem, strategy).empty()) strategy.keep = kStateHomes[0];
  strategy.layer_gradients = draw.of({LayerGradients::apart, LayerGradients::in_inputs});
  strategy.queries = draw.of({Queries::stored, Queries::again});
  strategy.tiles.backward_order = draw.of({BackwardOrder::kv_outer, BackwardOrder::q_outer});
  strategy.copies.prefetch_depth = draw.of({1, 2});
  draw_kinds(draw, problem.model, strategy.tiles.chunk_tokens);
  return {problem, canonical(problem, strategy)};
}

}  // namespace fpdt
