// Messages in closed form: in every layer all-to-alls of Ulysses (Jacobs et al., arXiv 2309.14509),
// and gathers of keys with sums of their gradients (arXiv 2311.02382), or keys that go around a
// ring with their gradients (arXiv 2310.01889); gathers and sums of ZeRO (Rajbhandari et al., arXiv
// 1910.02054).
//
// Units: N tokens of a sequence with padding, e bytes of storage, h and g heads on one rank, D
// their width. A rank sends 1/U of an all-to-all's bytes to each of U ranks, its keys to each of R,
// and its piece of a tensor to each of W; or its block of the tensor to those of its node, and its
// piece to one on each other node.
#include "traffic_formula.h"

#include <algorithm>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

// How often, in a micro-batch, q and kv of a layer go to their heads, and outputs come back: of all
// tokens, and of the first chunks alone. All layers of a segment but the last run forward twice.
// Queries of chunks that backward repeats may go twice.
struct Passages {
  std::int64_t qkv = 0, output = 0, chunks_of_qkv = 0, chunks_of_output = 0;
  std::int64_t queries = 0, chunks_of_queries = 0;
  std::int64_t reruns = 0;

  Passages(const Problem& problem, const Strategy& strategy) {
    const std::int64_t chunks = geometry(problem, strategy).chunks;
    for (const LayerPlace& at : layer_places(strategy, problem.model.layers)) {
      const LayerClass& choice = strategy.layer_classes[at.layer_class];
      const std::int64_t repeated = choice.repeated(chunks);
      const bool from_input = choice.recompute == Recompute::from_input;
      const bool whole = repeated == chunks;
      ++qkv;
      ++output;
      if (choice.recompute != Recompute::keep_all) ++qkv;
      if (!at.last()) {
        ++reruns;
        (whole ? qkv : chunks_of_qkv) += whole ? 1 : repeated;
        (whole ? output : chunks_of_output) += whole ? 1 : repeated;
      }
      // A rerun keeps what it repeats.
      if (at.last() || from_input) {
        (whole ? output : chunks_of_output) += whole ? 1 : repeated;
        if (projects_queries_again(strategy, choice)) {
          (whole ? queries : chunks_of_queries) += whole ? 1 : repeated;
        }
      }
    }
  }
};

Traffic many(std::int64_t times, const Traffic& one) {
  return {mul(times, one.node), mul(times, one.network)};
}

// Backward finds the last layer still gathered, unless any of it repeats layers first.
std::int64_t gathers_of_layers(const Problem& problem, const Strategy& strategy) {
  const std::int64_t twice = 2 * problem.model.layers;
  return longest_segment(strategy) == 1 ? twice - 1 : twice + Passages(problem, strategy).reruns;
}

// A group of ranks with a distance between them, as rank 0 sees it.
struct ToGroup {
  std::int64_t devices_per_node;
  Traffic operator()(std::int64_t size, std::int64_t stride, std::int64_t bytes,
                     std::int64_t hop = 0) const {
    return to_others({"", size, stride, {}}, 0, bytes, devices_per_node, hop);
  }
};

// Groups that share a tensor: each member of the first has what a group of the next shares.
struct Level {
  std::int64_t size, stride;
  bool keys = false;  // of ranks that have the same keys
};
using Levels = std::vector<Level>;

// A tensor, or a part of one, and who shares it.
struct Given {
  std::int64_t elements;
  Levels levels;
};

// How many levels gather parameters before their use: at stage 3 all, or those within a node.
std::size_t lenders(const Problem& problem, const Strategy& strategy, const Levels& levels) {
  if (strategy.zero < 3) return 0;
  const std::int64_t node = problem.cluster.devices_per_node;
  if (strategy.zero_groups != ZeroGroups::hybrid || node == problem.ranks()) return levels.size();
  return static_cast<std::size_t>(
      std::count_if(levels.begin(), levels.end(),
                    [&](const Level& one) { return one.keys || one.size * one.stride <= node; }));
}

// What one rank gives to others in a gather or a sum over levels [first, end).
Traffic passed(const ToGroup& to_group, const Given& given, std::int64_t element, std::size_t first,
               std::size_t end) {
  std::int64_t ranks = 1;
  for (const Level& level : given.levels) ranks *= level.size;
  std::int64_t block = div_ceil(given.elements, ranks) * ranks;
  Traffic sent;
  for (std::size_t i = 0; i < end; ++i) {
    block /= given.levels[i].size;
    if (i < first) continue;
    sent += to_group(given.levels[i].size, given.levels[i].stride, block * element);
  }
  return sent;
}

// The ranks of the job that are a distance apart: in one step, or those of a node and then of all
// nodes.
Levels all_ranks(const Problem& problem, const Strategy& strategy, std::int64_t distance) {
  const std::int64_t node = problem.cluster.devices_per_node;
  const bool steps = strategy.zero_groups != ZeroGroups::flat && node > distance &&
                     node % distance == 0 && node < problem.ranks();
  if (!steps) return {{problem.ranks() / distance, distance}};
  return {{node / distance, distance}, {problem.ranks() / node, node}};
}

// W ranks share a tensor; W/T share a part, at distances of T. Of keys and values that T/G ranks
// have, each of these gives its block of W/T pieces to the others too.
std::vector<Given> given(const Problem& problem, const Strategy& strategy, const TensorSpec& whole,
                         const TensorSpec& part) {
  const ModelSpec& model = problem.model;
  const std::int64_t tensor = strategy.mesh.tensor;
  if (whole.shape == part.shape) return {{whole.elements(), all_ranks(problem, strategy, 1)}};
  std::int64_t cut = part.elements();
  std::vector<Given> all;
  if (whole.name.starts_with("qkv.") && tensor > model.kv_heads) {
    const std::int64_t copies = tensor / model.kv_heads;
    const std::int64_t keys = cut / part.shape[0] * 2 * model.head_dim;
    cut -= keys;
    all.push_back({keys, {{copies, 1, true}, {problem.ranks() / tensor, tensor}}});
  }
  all.push_back({cut, all_ranks(problem, strategy, tensor)});
  return all;
}

// Tiles of the feed-forward in a layer, of one rank's rows.
std::int64_t tiles_of_layer(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const std::int64_t rows = strategy.tiles.ffn_rows, most = shape.product_rows(0);
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < shape.extents; ++i) {
    tiles += div_ceil(shape.extent_product_rows(i), rows > 0 ? std::min(rows, most) : most);
  }
  return tiles;
}

// Pieces of parameters, gradients and scalars that one rank gives to others in a step.
Traffic shared(const Problem& problem, const Strategy& strategy, std::int64_t element) {
  const ModelSpec& model = problem.model;
  const std::vector<TensorSpec> layer = layer_tensors(model);
  const std::vector<TensorSpec> parts = layer_tensors(part_of(model, strategy.mesh.tensor));
  const std::int64_t layers = model.layers;
  const std::int64_t gathers = gathers_of_layers(problem, strategy);
  const ToGroup to_group{problem.cluster.devices_per_node};
  Traffic sent;
  for (const Level& level : all_ranks(problem, strategy, 1)) {
    sent += to_group(level.size, level.stride, 2 * 4);  // loss, norm
  }
  const auto give = [&](const Given& one, std::int64_t count, std::int64_t gathered,
                        std::int64_t tiles = 1) {
    const std::size_t all = one.levels.size();
    const std::size_t near = lenders(problem, strategy, one.levels);
    const std::int64_t sums = strategy.zero <= 1 ? 1 : strategy.micro_batches;
    sent += many(tiles * sums * count, passed(to_group, one, 4, 0, all));
    sent += many(strategy.micro_batches * gathered, passed(to_group, one, element, 0, near));
    if (strategy.zero > 0) sent += many(count, passed(to_group, one, element, near, all));
    if (strategy.zero == 0) sent += many(count, passed(to_group, one, 4, 0, all));
  };
  for (const TensorSpec& whole : global_tensors(model)) {
    for (const Given& one : given(problem, strategy, whole, whole)) give(one, 1, 1);
  }
  const std::int64_t slices = strategy.tiles.expert_slices;
  const std::int64_t forward = layers + Passages(problem, strategy).reruns;
  for (std::size_t i = 0; i < layer.size(); ++i) {
    for (Given& one : given(problem, strategy, layer[i], parts[i])) {
      if (slices == 1 || (layer[i].name != "up.weight" && layer[i].name != "down.weight")) {
        give(one, layers, gathers);
        continue;
      }
      // Each tile gathers every slice, in forward and in backward; or each extent does.
      const std::int64_t tiles = strategy.tiles.slices_outside()
                                     ? geometry(problem, strategy).extents
                                     : tiles_of_layer(problem, strategy);
      one.elements = div_exact(one.elements, slices);
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        give(one, layers, tiles * (forward + layers), tiles);
      }
    }
  }
  return sent;
}

// Rows of tensor parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): how often, in a
// micro-batch, a rank gives its own rows of a layer to the others, or their rows of a sum to them.
std::int64_t passages_of_rows(const Problem& problem, const Strategy& strategy,
                              const Passages& passages) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t forward = layers + passages.reruns;
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
  const std::int64_t keys_width = 2 * shape.kv_heads * problem.model.head_dim;
  const std::int64_t first_chunks = passages.chunks_of_output * shape.query_rows(0);
  const std::int64_t first_projected = passages.chunks_of_qkv * shape.query_rows(0);
  // Backward sends dout with delta, and dq, dk and dv back.
  const std::int64_t exchanged =
      passages.qkv * (q + kv) * element + passages.output * q * element +
      first_chunks * width * element + first_projected * (width + keys_width) * element +
      passages.queries * q * element +
      passages.chunks_of_queries * shape.query_rows(0) * width * element +
      layers * ((q + q + kv) * element + delta);
  const std::int64_t tensor = strategy.mesh.tensor;
  Traffic sent =
      to_group(shape.head_ranks(), tensor, strategy.micro_batches * exchanged / shape.head_ranks());
  const std::int64_t row = problem.model.hidden * element;
  const std::int64_t rows = passages_of_rows(problem, strategy, passages) * shape.local_tokens() +
                            passages.chunks_of_qkv * shape.local_rows(0);
  sent += to_group(tensor, 1, strategy.micro_batches * rows * row);
  // Keys are gathered after each projection; or they go around, once for each attention and once
  // for backward.
  const std::int64_t gradient =
      shape.hops > 1 && strategy.key_gradients != Storage::f32 ? element : 4;
  const std::int64_t times = shape.hops > 1 ? passages.output + layers : passages.qkv;
  const std::int64_t of_first = (shape.hops > 1 ? first_chunks : first_projected) * keys_width;
  const std::int64_t keys =
      strategy.micro_batches * ((times * kv + of_first) * element + layers * kv * gradient);
  if (shape.gathers_keys()) sent += to_group(shape.ring, shape.head_ranks() * tensor, keys);
  if (shape.hops > 1) {
    const std::int64_t forward =
        strategy.micro_batches * (passages.output * kv + of_first) * element;
    const std::int64_t hops = shape.hops - 1;
    sent += to_group(shape.ring, shape.head_ranks() * tensor, hops * forward, 1);
    sent += to_group(shape.ring, shape.head_ranks() * tensor, hops * (keys - forward), hops);
  }
  sent += shared(problem, strategy, element);
  return sent;
}

}  // namespace fpdt
