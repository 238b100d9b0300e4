// Messages in closed form: in every layer all-to-alls of Ulysses (Jacobs et al., arXiv 2309.14509),
// and gathers of keys with sums of their gradients (arXiv 2311.02382), or keys that go around a
// ring with their gradients (arXiv 2310.01889); gathers and sums of ZeRO (Rajbhandari et al., arXiv
// 1910.02054).
//
// Units: N tokens of a sequence with padding, e bytes of storage, h and g heads on one rank, D
// their width. A rank sends 1/U of an all-to-all's bytes to each of U ranks, its keys to each of R,
// and its piece of a tensor to each of W.
#include "traffic_formula.h"

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/sharding.h"

namespace fpdt {
namespace {

// How often, in a micro-batch, q and kv of a layer go to their heads, and outputs come back. With
// checkpoint_every = k, k-1 of k layers run forward twice. Of some only the first chunks come back.
struct Passages {
  std::int64_t qkv = 0, output = 0, chunks_of_output = 0;

  Passages(const Problem& problem, const Strategy& strategy) {
    const std::int64_t layers = problem.model.layers;
    const std::int64_t every = strategy.checkpoint_every();
    qkv = output = layers + layers / every * (every - 1);
    std::int64_t first = 0;
    for (const LayerClass& choice : strategy.layer_classes) {
      const std::int64_t count = choice.layers > 0 ? choice.layers : layers - first;
      first += count;
      if (choice.recompute != Recompute::keep_all) qkv += count;
      // Repeats keep the output of all layers of a segment but the last, which has no repeat.
      if (choice.recompute == Recompute::from_input) output += count;
      const bool segments = choice.recompute == Recompute::keep_attention && every > 1;
      if (segments) output += layers / every;
      if (choice.recompute == Recompute::from_input) continue;
      chunks_of_output += choice.first_stored_chunk * (count - (segments ? layers / every : 0));
    }
  }
};

Traffic many(std::int64_t times, const Traffic& one) {
  return {mul(times, one.node), mul(times, one.network)};
}

// Backward finds the last layer still gathered, unless it repeats layers first.
std::int64_t gathers_of_layers(std::int64_t layers, std::int64_t every) {
  return every == 1 ? 2 * layers - 1 : layers + layers / every * (2 * every - 1);
}

// A group of ranks with a distance between them, as rank 0 sees it.
struct ToGroup {
  std::int64_t devices_per_node;
  Traffic operator()(std::int64_t size, std::int64_t stride, std::int64_t bytes,
                     std::int64_t hop = 0) const {
    return to_others({"", size, stride, {}}, 0, bytes, devices_per_node, hop);
  }
};

// What one rank gives to others of a tensor, or of its part of one, in a gather or in a sum. W
// ranks share a tensor; W/T share a part, at distances of T. Of keys and values that T/G ranks
// have, each of these gives its block of W/T pieces to the others too.
Traffic given(const Problem& problem, std::int64_t tensor, const TensorSpec& whole,
              const TensorSpec& part, std::int64_t element) {
  const ToGroup to_group{problem.cluster.devices_per_node};
  const ModelSpec& model = problem.model;
  const std::int64_t sharers = problem.ranks() / tensor;
  if (whole.shape == part.shape) {
    return to_group(problem.ranks(), 1, div_ceil(whole.elements(), problem.ranks()) * element);
  }
  std::int64_t cut = part.elements();
  Traffic sent;
  if (whole.name.starts_with("qkv.") && tensor > model.kv_heads) {
    const std::int64_t copies = tensor / model.kv_heads;
    const std::int64_t keys = cut / part.shape[0] * 2 * model.head_dim;
    cut -= keys;
    const std::int64_t piece = div_ceil(keys, sharers * copies) * element;
    sent += to_group(copies, 1, piece * sharers);
    sent += to_group(sharers, tensor, piece);
  }
  sent += to_group(sharers, tensor, div_ceil(cut, sharers) * element);
  return sent;
}

// Pieces of parameters, gradients and scalars that one rank gives to others in a step.
Traffic shared(const Problem& problem, const Strategy& strategy, std::int64_t element) {
  const Sharding sharding{problem.ranks(), strategy.zero};
  const ModelSpec& model = problem.model;
  const std::int64_t tensor = strategy.mesh.tensor;
  const std::vector<TensorSpec> layer = layer_tensors(model);
  const std::vector<TensorSpec> parts = layer_tensors(part_of(model, tensor));
  const std::int64_t layers = model.layers;
  Traffic sent =
      ToGroup{problem.cluster.devices_per_node}(problem.ranks(), 1, 2 * 4);  // loss, norm
  // The global tensors once, and a layer as often as `times`; all so often.
  const auto give = [&](std::int64_t often, std::int64_t times, std::int64_t bytes) {
    for (const TensorSpec& one : global_tensors(model)) {
      sent += many(often, given(problem, tensor, one, one, bytes));
    }
    for (std::size_t i = 0; i < layer.size(); ++i) {
      sent += many(often * times, given(problem, tensor, layer[i], parts[i], bytes));
    }
  };
  give(sharding.collects_gradients() ? 1 : strategy.micro_batches, layers, 4);
  if (sharding.gathers_parameters()) {
    give(strategy.micro_batches, gathers_of_layers(layers, strategy.checkpoint_every()), element);
  }
  if (sharding.spreads_updates()) give(1, layers, element);
  if (sharding.repeats_updates()) give(1, layers, 4);
  return sent;
}

// Rows of tensor parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): how often, in a
// micro-batch, a rank gives its own rows of a layer to the others, or their rows of a sum to them.
std::int64_t passages_of_rows(const Problem& problem, const Strategy& strategy,
                              const Passages& passages) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t every = strategy.checkpoint_every();
  const std::int64_t forward = layers + layers / every * (every - 1);
  // Forward: n2, and the sums of out and down; n1 with each projection. Backward: n1, n2 and dy,
  // and the sums of dn1 and dn2.
  std::int64_t rows = passages.qkv + 3 * forward + 5 * layers;
  if (problem.model.parallel_residual) return rows;
  rows += layers;  // dh
  std::int64_t first = 0;
  for (const LayerClass& choice : strategy.layer_classes) {  // the sum of out, repeated
    const std::int64_t count = choice.layers > 0 ? choice.layers : layers - first;
    first += count;
    if (choice.recompute != Recompute::keep_all) rows += count;
  }
  return rows;
}

}  // namespace

Traffic closed_form_traffic(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t element = strategy.storage == Storage::f32 ? 4 : 2;
  const ToGroup to_group{problem.cluster.devices_per_node};
  // Tokens whose queries a rank has, and bytes of them.
  const std::int64_t tokens = shape.padded_tokens / shape.ring;
  const std::int64_t width = shape.heads * problem.model.head_dim;
  const std::int64_t q = mul(tokens, width);
  const std::int64_t kv = mul(tokens, 2 * shape.kv_heads * problem.model.head_dim);
  const std::int64_t delta = mul(tokens, shape.heads) * 4;
  const std::int64_t layers = problem.model.layers;
  const Passages passages(problem, strategy);
  const std::int64_t first_chunks = passages.chunks_of_output * shape.query_rows(0);
  // Backward sends dout with delta, and dq, dk and dv back.
  const std::int64_t exchanged = passages.qkv * (q + kv) * element + passages.output * q * element +
                                 first_chunks * width * element +
                                 layers * ((q + q + kv) * element + delta);
  const std::int64_t tensor = strategy.mesh.tensor;
  Traffic sent =
      to_group(shape.head_ranks(), tensor, strategy.micro_batches * exchanged / shape.head_ranks());
  const std::int64_t rows = mul(shape.local_tokens(), problem.model.hidden) * element;
  sent += to_group(tensor, 1,
                   strategy.micro_batches * passages_of_rows(problem, strategy, passages) * rows);
  // Keys are gathered after each projection; or they go around, once for each attention and once
  // for backward.
  const std::int64_t gradient =
      shape.hops > 1 && strategy.key_gradients != Storage::f32 ? element : 4;
  const std::int64_t times = shape.hops > 1 ? passages.output + layers : passages.qkv;
  const std::int64_t keys =
      strategy.micro_batches * (times * kv * element + layers * kv * gradient);
  if (shape.gathers_keys()) sent += to_group(shape.ring, shape.head_ranks() * tensor, keys);
  if (shape.hops > 1) {
    const std::int64_t forward = strategy.micro_batches * passages.output * kv * element;
    const std::int64_t hops = shape.hops - 1;
    sent += to_group(shape.ring, shape.head_ranks() * tensor, hops * forward, 1);
    sent += to_group(shape.ring, shape.head_ranks() * tensor, hops * (keys - forward), hops);
  }
  sent += shared(problem, strategy, element);
  return sent;
}

}  // namespace fpdt
