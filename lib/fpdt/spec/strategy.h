// The decision space: every choice the planner makes is a field here, and nothing else is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/spec/cluster.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// The settings of the optimizer.
struct OptimizerSpec {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // of tensors with decay
  double clip = 1.0;          // global gradient norm; 0: no clipping
  bool operator==(const OptimizerSpec&) const = default;
};

// Ranks as a grid. Their product is the number of ranks, and the last varies fastest.
struct Mesh {
  std::int64_t replicas = 1;  // train other sequences (data parallelism)
  std::int64_t ring = 1;      // share the queries of a head; keys and values travel between them
  std::int64_t heads = 0;     // exchange tokens for heads by all-to-all; 0: the other ranks
  std::int64_t tensor = 1;    // share each product
  bool operator==(const Mesh&) const = default;
};

// Where the keys of an attention tile come from: this rank's chunks, a neighbour, or all ranks.
enum class Keys : std::uint8_t { resident, ring, gathered };
// Which tokens of a sequence a rank holds before the all-to-all. Each chunk is cut into a run for
// every rank, so with one chunk a rank holds one run. Zigzag: rings take the runs of every second
// chunk in the opposite order, so that ranks with late tokens of one chunk have early ones of the
// next, and causal attention is the same work for all of them.
enum class Layout : std::uint8_t { interleaved, zigzag };
// Rows of norms and products: those of a chunk, or all of the rank.
enum class Extent : std::uint8_t { chunk, whole };
// Whether backward stores the queries of a layer from their projection to their tiles, or projects
// them again at their row.
enum class Queries : std::uint8_t { stored, again };
// Where the gradient of the residual stream waits between two layers: in memory of its own, or in
// the slots of the layer input that it is the gradient of, which backward has read for the last
// time.
enum class LayerGradients : std::uint8_t { apart, in_inputs };
enum class Storage : std::uint8_t { f32, bf16 };
// The tensors that backward finds stored: the layer's input only; also attention output and lse, so
// that the quadratic part is not repeated; or every tensor that backward reads.
enum class Recompute : std::uint8_t { from_input, keep_attention, keep_all };
enum class BackwardOrder : std::uint8_t { kv_outer, q_outer };
// What the outer loop of a layer's experts goes over: tiles of rows, each of which gathers all
// slices of experts; or slices, each of which meets all tiles of an extent.
enum class ExpertLoop : std::uint8_t { tiles, slices };

// How ranks on several nodes share what ZeRO shards.
enum class ZeroGroups : std::uint8_t {
  flat,          // gathers and sums go over all ranks in one step
  hierarchical,  // they go over the ranks of a node, and over nodes
  hybrid,        // the same, and at stage 3 each node has all parameters
};

constexpr auto words_of(ZeroGroups) { return word_list("flat", "hierarchical", "hybrid"); }
constexpr auto words_of(Keys) { return word_list("resident", "ring", "gathered"); }
constexpr auto words_of(Layout) { return word_list("interleaved", "zigzag"); }
constexpr auto words_of(Extent) { return word_list("chunk", "whole"); }
constexpr auto words_of(Queries) { return word_list("stored", "again"); }
constexpr auto words_of(LayerGradients) { return word_list("apart", "in_inputs"); }
constexpr auto words_of(Storage) { return word_list("f32", "bf16"); }
constexpr auto words_of(Recompute) { return word_list("from_input", "keep_attention", "keep_all"); }
constexpr auto words_of(BackwardOrder) { return word_list("kv_outer", "q_outer"); }
constexpr auto words_of(ExpertLoop) { return word_list("tiles", "slices"); }

// Tensor classes whose home (device or pinned host) the strategy chooses.
enum class TensorClass : std::uint8_t {
  layer_input,        // [l, E] residual stream entering a layer
  norm_output,        // [l, E] of the first norm; stored under keep_all only
  q,                  // [n, h*D] after the all-to-all
  kv,                 // [n, 2*g*D]
  attention_output,   // [l, H*D] back in sequence layout
  lse,                // [n, h]
  residual,           // [l, E] after attention; stored under keep_all only
  ffn_hidden,         // [l, up_width] before the activation; stored under keep_all only
  layer_gradient,     // [l, E] gradient of the residual stream between layers
  residual_gradient,  // [l, E] gradient of `residual`, waiting for the attention gradient
  dout,               // [n, h*D] and delta [n, h]
  dq,                 // [n, h*D] f32 accumulator
  dkv,                // [n, 2*g*D] f32 accumulator
  attention_sum,      // [n, h*D] and lse [n, h] f32, while keys go around a ring
};
constexpr auto words_of(TensorClass) {
  return word_list("layer_input", "norm_output", "q", "kv", "attention_output", "lse", "residual",
                   "ffn_hidden", "layer_gradient", "residual_gradient", "dout", "dq", "dkv",
                   "attention_sum");
}
inline constexpr std::size_t kTensorClasses = words<TensorClass>().size();

// Parameters, their gradients, and the optimizer's states (master weights and moments), whose home
// the strategy chooses as well.
// Parameters and gradients of embedding and head stay on the device.
enum class StateClass : std::uint8_t { parameters, gradients, states };
constexpr auto words_of(StateClass) { return word_list("parameters", "gradients", "states"); }
inline constexpr std::size_t kStateClasses = words<StateClass>().size();
// Fractions on the device, from the fewest bytes on the host to the most.
inline constexpr std::array<std::array<double, kStateClasses>, 4> kStateHomes{
    {{1, 1, 1}, {1, 1, 0}, {1, 0, 0}, {0, 0, 0}}};

// Choices for consecutive layers.
struct LayerClass {
  std::int64_t layers = 0;  // how many; 0 in the last class: the rest
  Recompute recompute = Recompute::from_input;
  // Attention output and lse are stored from this chunk on, unless under from_input. Attention of
  // the chunks before it, which have few keys and cost little, is repeated: when backward repeats
  // the segment, or else in backward of the layer. The number of chunks: none is stored.
  std::int64_t first_stored_chunk = 0;
  // Fraction of the stored chunks on the device (whole chunks, the last ones, rounded down); the
  // others go to the pinned host.
  std::array<double, kTensorClasses> keep{};
  bool operator==(const LayerClass&) const = default;
  [[nodiscard]] double kept(TensorClass tensor) const {
    return keep[static_cast<std::size_t>(tensor)];
  }
  // How many of the first chunks have no attention stored across the step.
  [[nodiscard]] std::int64_t repeated(std::int64_t chunks) const {
    return recompute == Recompute::from_input ? chunks : first_stored_chunk;
  }
};

struct Tiles {
  std::int64_t chunk_tokens = 65536;  // c: tokens of one chunk over all ranks
  std::int64_t ffn_rows = 0;          // rows of one rank; 0: the whole chunk
  std::int64_t loss_rows = 0;         // 0: the whole chunk
  std::int64_t loss_vocabulary = 0;   // 0: the whole vocabulary
  std::int64_t expert_slices = 1;     // in which the experts of a layer are gathered, in turn
  ExpertLoop expert_loop = ExpertLoop::tiles;  // the outer one
  BackwardOrder backward_order = BackwardOrder::kv_outer;
  bool serpentine = false;  // alternate the direction of rows; reuse what is still in the ring
  bool long_tiles = false;  // one attention tile spans all KV that is resident on the device
  [[nodiscard]] bool slices_outside() const {
    return expert_slices > 1 && expert_loop == ExpertLoop::slices;
  }
  bool operator==(const Tiles&) const = default;
};

struct Copies {
  std::int64_t prefetch_depth = 1;        // transfers ahead of their use
  bool duplex = true;                     // one copy lane for each direction
  bool overlap_all_to_all = true;         // of chunk i+1, beside the attention of chunk i
  std::int64_t optimizer_tile = 1 << 22;  // elements of one piece of states that come from the host
  bool operator==(const Copies&) const = default;
};

// One point of the space of all methods. `check` refuses the values that no lowering serves yet.
struct Strategy {
  Mesh mesh;
  Keys keys = Keys::resident;
  Layout layout = Layout::interleaved;
  Extent extent = Extent::chunk;
  std::int64_t zero = 3;  // ZeRO stage: 1 shards the states, 2 also gradients, 3 also parameters
  ZeroGroups zero_groups = ZeroGroups::flat;
  std::int64_t micro_batches = 1;
  std::int64_t head_stages = 1;          // groups of heads that attention takes one after the other
  Storage storage = Storage::bf16;       // of parameters and activations; sums are f32
  Storage gradients = Storage::f32;      // of layers, from their sum to the update
  Storage key_gradients = Storage::f32;  // of keys, on their way around a ring
  LayerGradients layer_gradients = LayerGradients::apart;
  Queries queries = Queries::stored;
  // Fraction of each on the device; the rest has its home on the pinned host.
  std::array<double, kStateClasses> keep{1, 1, 1};
  // Layers of each segment from the input on; the last number repeats. Only the input of a
  // segment's first layer is stored across the step. Backward of a segment first runs forward
  // through its layers but the last, from stored attention outputs where there are some.
  std::vector<std::int64_t> segments{1};
  Tiles tiles;
  Copies copies;
  std::vector<LayerClass> layer_classes{LayerClass{}};  // one to four
  bool operator==(const Strategy&) const = default;

  [[nodiscard]] double kept(StateClass one) const { return keep[static_cast<std::size_t>(one)]; }
  // Whether they stream through the device, and have their home on the host.
  [[nodiscard]] bool offloads(StateClass one) const { return kept(one) == 0; }
  [[nodiscard]] bool offloads_states() const { return offloads(StateClass::states); }
  // Whether gradients of layers are summed in slots, and not where they are kept.
  [[nodiscard]] bool moves_gradients() const {
    return offloads(StateClass::gradients) || gradients != Storage::f32;
  }
  void offload(StateClass one, bool host) { keep[static_cast<std::size_t>(one)] = host ? 0 : 1; }
  void offload_states(bool host) { offload(StateClass::states, host); }
};

// The question to the planner.
struct Problem {
  ModelSpec model;
  ClusterSpec cluster;
  // S, tokens of one sequence: one micro-batch of one data-parallel replica.
  std::int64_t seq_len = 0;
  bool documents = true;  // a sequence may hold several documents
  Bytes device_budget;    // of one device; <= cluster.device_memory
  Bytes host_budget;      // of one node
  OptimizerSpec optimizer;
  bool operator==(const Problem&) const = default;

  [[nodiscard]] std::int64_t ranks() const { return cluster.devices(); }
};

// The problem with sequences of so many tokens.
inline Problem with_length(Problem problem, std::int64_t tokens) {
  problem.seq_len = tokens;
  return problem;
}
// The problem on so many devices of a machine. A host budget that is all memory of a node remains
// that, though the processes of other numbers of devices leave more or less of it.
inline Problem with_devices(Problem problem, const ClusterSpec& machine, std::int64_t devices) {
  const bool all = problem.host_budget == problem.cluster.host_available();
  problem.cluster = with_devices(machine, devices);
  if (all) problem.host_budget = problem.cluster.host_available();
  return problem;
}

// Most chunks of a sequence: u chunks take about 3 u^2 ops, which stay under 100K in a block.
inline constexpr std::int64_t kChunksMost = 180;

// Most chunks of keys that all ranks together receive in a pass over a layer of each class. The
// verifier follows them within some ten seconds and about 2 GiB.
inline constexpr std::int64_t kExchangesMost = std::int64_t{1} << 25;

// Findings that make a run impossible: heads that ranks do not divide, chunks of no tokens, too few
// learned positions.
std::vector<Diagnostic> check(const Problem& problem, const Strategy& strategy);

// Why backward cannot project queries again at their row; empty if it can.
std::string_view why_queries_stored(const Strategy& strategy, const LayerClass& layers);
// Whether it does.
bool projects_queries_again(const Strategy& strategy, const LayerClass& layers);
// Why the residency of a tensor class has no effect; empty if it has one.
std::string_view why_unused(const ModelSpec& model, const Strategy& strategy,
                            const LayerClass& layers, TensorClass tensor);

// Defaults for a problem: chunks of 64K tokens, or of the sequence if it is shorter, with
// everything spilled that can be.
Strategy default_strategy(const Problem& problem);

// The fewest rows per tile with which the feed-forward and loss tiles of a sequence, in the
// strategy's vocabulary tiles, stay within the count that check() allows.
std::int64_t least_ffn_rows(const Problem& problem, const Strategy& strategy);
std::int64_t least_loss_rows(const Problem& problem, const Strategy& strategy);
// The factor of a sequence's part of the loss that balances experts: the model's, times X, over the
// sequences of a step. 0 without one.
double sequence_balance(const Problem& problem, const Strategy& strategy);
// That of its z loss: the model's over the sequences of a step.
double sequence_z(const Problem& problem, const Strategy& strategy);

// Geometry that follows from problem and strategy.
struct Geometry {
  std::int64_t sequence_parallel = 1;  // P
  std::int64_t ring = 1;               // R: ranks that have the same heads and share a chunk
  std::int64_t tensor_ranks = 1;       // T: ranks that share each product
  std::int64_t data_parallel = 1;
  std::int64_t padded_tokens = 0;    // S with the last chunk padded to P * row_multiple
  std::int64_t chunks = 1;           // C
  std::int64_t chunk_rows = 0;       // n of all chunks but the last
  std::int64_t last_chunk_rows = 0;  // n of the last
  [[nodiscard]] bool ragged() const { return last_chunk_rows != chunk_rows; }
  std::int64_t heads = 0;     // h on one rank
  std::int64_t kv_heads = 0;  // g on one rank, replicated when G < P
  std::int64_t extents = 1;   // runs of rows that norms take at once: C or 1
  bool zigzag = false;
  std::int64_t hops = 1;  // R where keys go around the ring: attention meets those of each rank

  [[nodiscard]] std::int64_t rows(std::int64_t chunk) const {
    return chunk + 1 == chunks ? last_chunk_rows : chunk_rows;
  }
  [[nodiscard]] std::int64_t local_rows(std::int64_t chunk) const {
    return rows(chunk) / sequence_parallel;
  }
  // U: ranks that exchange tokens for heads. The ranks of a replica are R by U by T.
  [[nodiscard]] std::int64_t head_ranks() const {
    return sequence_parallel / (ring * tensor_ranks);
  }
  // Rows of a chunk on which a rank computes its part of a product: those of all T ranks.
  [[nodiscard]] std::int64_t product_rows(std::int64_t chunk) const {
    return local_rows(chunk) * tensor_ranks;
  }
  // Queries of a chunk whose attention one rank computes, for its heads.
  [[nodiscard]] std::int64_t query_rows(std::int64_t chunk) const { return rows(chunk) / ring; }
  [[nodiscard]] std::int64_t local_tokens() const { return padded_tokens / sequence_parallel; }
  // Whether a rank has the keys of the whole chunk from all ranks of its ring.
  [[nodiscard]] bool gathers_keys() const { return ring > 1 && hops == 1; }
  // Keys of a chunk that attention meets at once, for a rank's heads.
  [[nodiscard]] std::int64_t key_rows(std::int64_t chunk) const {
    return hops > 1 ? query_rows(chunk) : rows(chunk);
  }
  // Whether the ranks of a ring take the runs of a chunk in the opposite order.
  [[nodiscard]] bool reversed(std::int64_t chunk) const { return zigzag && chunk % 2 == 1; }
  // How many chunks before its own the queries of a chunk see some keys of, at most.
  [[nodiscard]] std::int64_t chunks_back(const LayerKind& kind) const {
    if (kind.window == 0) return chunks;
    return (kind.window - 1 + chunk_rows - 1) / chunk_rows;
  }
  // Members of a ring whose keys the queries of a rank see some of, its own included. Where chunks
  // alternate their order, these are the neighbours on both sides, in turn, or all.
  [[nodiscard]] std::int64_t hops_of(const LayerKind& kind) const {
    if (kind.window == 0) return hops;
    const std::int64_t run = query_rows(chunks - 1);  // the shortest
    const std::int64_t reach = 1 + (kind.window - 1 + run - 1) / run;
    return zigzag && reach > 2 ? hops : std::min(hops, reach);
  }
  // Where the queries of a run see keys of no other runs but their own and that before it: the last
  // keys of a run that the next one sees, all that is sent of it. 0: whole runs go around.
  [[nodiscard]] std::int64_t halo_rows(const LayerKind& kind) const {
    if (hops == 1 || kind.window < 2) return 0;
    return kind.window - 1 <= query_rows(chunks - 1) ? kind.window - 1 : 0;
  }
  // Where the rows of a chunk begin among those of the rank.
  [[nodiscard]] std::int64_t local_first(std::int64_t chunk) const {
    return chunk * chunk_rows / sequence_parallel;
  }
  [[nodiscard]] std::int64_t extent_rows(std::int64_t extent) const {
    return extents == chunks ? local_rows(extent) : local_tokens();
  }
  [[nodiscard]] std::int64_t extent_product_rows(std::int64_t extent) const {
    return extent_rows(extent) * tensor_ranks;
  }
  // The extent in which a chunk lies.
  [[nodiscard]] std::int64_t extent_of(std::int64_t chunk) const {
    return extents == chunks ? chunk : 0;
  }
  // Parts in which a tensor class is made and moved, and how many of them stay on the device: those
  // of rows in sequence layout are extents. What backward repeats is no part of what is stored.
  struct Parts {
    std::int64_t all, kept;
  };
  [[nodiscard]] Parts parts(const LayerClass& layers, TensorClass tensor) const;
};
Geometry geometry(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
