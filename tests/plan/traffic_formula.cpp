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

// One rank's piece of the tensors, `element` bytes each.
std::int64_t pieces(const std::vector<TensorSpec>& tensors, std::int64_t ranks,
                    std::int64_t element) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    bytes = add(bytes, mul(div_ceil(tensor.elements(), ranks), element));
  }
  return bytes;
}

// Backward finds the last layer still gathered, unless it repeats layers first.
std::int64_t gathers_of_layers(std::int64_t layers, std::int64_t every) {
  return every == 1 ? 2 * layers - 1 : layers + layers / every * (2 * every - 1);
}

// Pieces of parameters, gradients and scalars that one rank gives to each, in a step.
std::int64_t shared(const Problem& problem, const Strategy& strategy, std::int64_t element) {
  const Sharding sharding{problem.ranks(), strategy.zero};
  const std::vector<TensorSpec> layer = layer_tensors(problem.model);
  const std::vector<TensorSpec> global = global_tensors(problem.model);
  const std::int64_t layers = problem.model.layers;
  // Of the global tensors once, and of a layer as often as `times`.
  const auto given = [&](std::int64_t times, std::int64_t bytes) {
    return pieces(global, sharding.ranks, bytes) + times * pieces(layer, sharding.ranks, bytes);
  };
  std::int64_t bytes = 2 * 4;  // the loss, and the norm of the gradient
  bytes += (sharding.collects_gradients() ? 1 : strategy.micro_batches) * given(layers, 4);
  if (sharding.gathers_parameters()) {
    const std::int64_t times = gathers_of_layers(layers, strategy.checkpoint_every());
    bytes += strategy.micro_batches * given(times, element);
  }
  if (sharding.spreads_updates()) bytes += given(layers, element);
  if (sharding.repeats_updates()) bytes += given(layers, 4);
  return bytes;
}

}  // namespace

Traffic closed_form_traffic(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t element = strategy.storage == Storage::f32 ? 4 : 2;
  const auto to_group = [&](std::int64_t size, std::int64_t stride, std::int64_t bytes,
                            std::int64_t hop = 0) {
    return to_others({"", size, stride, {}}, 0, bytes, problem.cluster.devices_per_node, hop);
  };
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
  Traffic sent =
      to_group(shape.head_ranks(), 1, strategy.micro_batches * exchanged / shape.head_ranks());
  // Keys are gathered after each projection; or they go around, once for each attention and once
  // for backward.
  const std::int64_t gradient =
      shape.hops > 1 && strategy.key_gradients != Storage::f32 ? element : 4;
  const std::int64_t times = shape.hops > 1 ? passages.output + layers : passages.qkv;
  const std::int64_t keys =
      strategy.micro_batches * (times * kv * element + layers * kv * gradient);
  if (shape.gathers_keys()) sent += to_group(shape.ring, shape.head_ranks(), keys);
  if (shape.hops > 1) {
    const std::int64_t forward = strategy.micro_batches * passages.output * kv * element;
    const std::int64_t hops = shape.hops - 1;
    sent += to_group(shape.ring, shape.head_ranks(), hops * forward, 1);
    sent += to_group(shape.ring, shape.head_ranks(), hops * (keys - forward), hops);
  }
  sent += to_group(problem.ranks(), 1, shared(problem, strategy, element));
  return sent;
}

}  // namespace fpdt
