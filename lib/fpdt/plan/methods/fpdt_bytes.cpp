// FPDT's bytes in closed form. Units: one rank; e bytes of storage; l = c/P rows of a chunk on one rank, n = c
// rows after the all-to-all, C chunks, h = H/P and g = max(1, G/P) heads.
//
// Per chunk (fpdt.md style counts, Yao et al. section 4): hidden tensors l*E*e; q, o, dO and dq n*h*D each;
// KV and dKV n*2g*D; lse and delta n*h*4. A tensor class with k of C chunks kept costs k chunks a live
// instance on the device, and for the others C-k host chunks an instance, two device chunks where they are
// produced and 1 + depth where they are fetched. Every slot is rounded up to kAlignment.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/plan/bytes.h"

namespace fpdt {
namespace {

// Arenas are mapped in whole pages of the operating system.
constexpr std::int64_t kPageBytes = 4096;

// Parts of a home that a block touches.
enum Part : unsigned { kKept = 1, kNew = 2, kHost = 4, kFetched = 8 };

class Formula {
 public:
  Formula(const Problem& problem, const Strategy& strategy)
      : strategy_(strategy),
        model_(problem.model),
        fpdt_(strategy.fpdt),
        shape_(geometry(problem, strategy)),
        world_(problem.ranks()),
        ranks_(shape_.sequence_parallel),
        chunks_(shape_.chunks),
        local_(shape_.local_rows(0)),
        rows_(shape_.rows(0)),
        element_(strategy.storage == Storage::f32 ? 4 : 2),
        overlap_(fpdt_.overlap_all_to_all ? 1 : 0) {}

  void evaluate() {
    states();
    ends();
    std::int64_t first = 0;
    for (std::size_t c = 0; c < fpdt_.layer_classes.size(); ++c) {
      const LayerClass& choice = fpdt_.layer_classes[c];
      count_ = choice.layers > 0 ? choice.layers : model_.layers - first;
      first += count_;
      suffix_.clear();
      if (fpdt_.layer_classes.size() > 1) suffix_.append(1, '_').append(std::to_string(c));
      if (fpdt_.checkpoint_every == 1) {
        forward("forward" + suffix_, choice, true, true);
        backward("backward" + suffix_, choice, true);
        continue;
      }
      forward("forward_first", choice, true, false);
      forward("forward_last", choice, false, true);
      forward("rerun_first", choice, true, false);
      if (fpdt_.checkpoint_every > 2) {
        forward("forward_middle", choice, false, false);
        forward("rerun_middle", choice, false, false);
      }
      backward("backward_first", choice, true);
      backward("backward_inside", choice, false);
    }
  }

  [[nodiscard]] BlockBytes by_block() const;
  [[nodiscard]] Prediction predict() const;

 private:
  // A line: one ring, by its name; blocks that use the same ring share the line.
  void add(const std::string& block, const std::string& name, MemorySpace space, Category category,
           std::int64_t slots, std::int64_t slot_bytes, bool lasting = false) {
    if (slots <= 0 || slot_bytes <= 0) return;
    const Bytes bytes{mul(slots, round_up(slot_bytes, kAlignment))};
    lines_.insert_or_assign(name, Line{space, category, bytes, lasting});
    blocks_[block].insert(name);
  }
  void activation(const std::string& block, const std::string& name, std::int64_t slots,
                  std::int64_t slot_bytes, bool lasting = false) {
    add(block, name, MemorySpace::device, Category::activations, slots, slot_bytes, lasting);
  }
  void staging(const std::string& block, const std::string& name, std::int64_t slot_bytes) {
    if (ranks_ == 1) return;
    add(block, name, MemorySpace::device, Category::communication, 1 + overlap_, slot_bytes);
  }
  void scalar(const std::string& block, const std::string& name, std::int64_t n) {
    add(block, name, MemorySpace::device, Category::scalars, 1, 4 * n, true);
  }
  void host_scalar(const std::string& block, const std::string& name, std::int64_t n) {
    add(block, name, MemorySpace::host, Category::scalars, 1, 4 * n, true);
  }

  [[nodiscard]] std::int64_t kept(double fraction) const {
    return static_cast<std::int64_t>(fraction * static_cast<double>(chunks_));
  }

  // One tensor class: `chunk` bytes each, `instances` alive. A contiguous one holds exactly the rows of its
  // kept chunks, the last of them ragged.
  struct Class {
    std::string name;
    std::int64_t chunk = 0, instances = 1;
    double keep = 0;
    std::int64_t produced = 2;
    std::int64_t row = 0;  // bytes of a row, when contiguous
    std::int64_t fetched = 0;  // 0: 1 + depth
    bool across = false;       // lives from forward to backward
  };
  void home(const std::string& block, const Class& one, unsigned parts) {
    const std::int64_t k = kept(one.keep);
    if ((parts & kKept) != 0 && k > 0) {
      const std::int64_t rows = shape_.padded_tokens - (chunks_ - k) * shape_.chunk_rows;
      const bool contiguous = one.row > 0;
      activation(block, one.name + "_kept", contiguous ? one.instances : k * one.instances,
                 contiguous ? rows * one.row : one.chunk, one.across);
    }
    if (k == chunks_) return;
    if ((parts & kNew) != 0) activation(block, one.name + "_new", one.produced, one.chunk);
    if ((parts & kFetched) != 0) {
      activation(block, one.name, one.fetched > 0 ? one.fetched : 1 + fpdt_.prefetch_depth, one.chunk);
    }
    if ((parts & kHost) != 0) {
      add(block, one.name + "_host", MemorySpace::host_pinned, Category::activations,
          (chunks_ - k) * one.instances, one.chunk, one.across);
    }
  }

  struct Tensor {
    TensorSpec spec;
    std::int64_t count;
  };
  [[nodiscard]] std::vector<Tensor> layer_list() const {
    std::vector<Tensor> list;
    for (const TensorSpec& spec : layer_tensors(model_)) list.push_back({spec, model_.layers});
    return list;
  }
  [[nodiscard]] std::vector<Tensor> globals(const std::vector<std::string>& names) const {
    std::vector<Tensor> list;
    for (const TensorSpec& spec : global_tensors(model_)) {
      const bool named = std::find(names.begin(), names.end(), spec.name) != names.end();
      if (named || names.empty()) list.push_back({spec, 1});
    }
    return list;
  }
  [[nodiscard]] std::int64_t piece(const Tensor& tensor) const {
    return div_ceil(tensor.spec.elements(), world_);
  }

  // ZeRO-3: 2 (or 4) + 4 + 12 bytes a parameter, over all ranks (Rajbhandari et al., section 5).
  void shard(const std::string& block, const std::vector<Tensor>& list) {
    for (const Tensor& tensor : list) {
      add(block, "param." + tensor.spec.name, MemorySpace::device, Category::weights, tensor.count,
          element_ * piece(tensor), true);
    }
  }
  void shard_gradient(const std::string& block, const std::vector<Tensor>& list) {
    for (const Tensor& tensor : list) {
      add(block, "grad." + tensor.spec.name, MemorySpace::device, Category::gradients, tensor.count,
          4 * piece(tensor), true);
    }
  }
  // Whole tensors: gathered, or the shard itself with one rank.
  void weights(const std::string& block, const std::vector<Tensor>& list, std::int64_t slots) {
    if (world_ == 1) return shard(block, list);
    for (const Tensor& tensor : list) {
      add(block, "gathered." + tensor.spec.name, MemorySpace::device, Category::weights, slots,
          element_ * world_ * piece(tensor));
    }
  }
  void whole_sums(const std::string& block, const std::vector<Tensor>& list, std::int64_t slots) {
    for (const Tensor& tensor : list) {
      add(block, "gradient_sum." + tensor.spec.name, MemorySpace::device, Category::gradients, slots,
          4 * world_ * piece(tensor));
    }
  }
  void gradient_sums(const std::string& block, const std::vector<Tensor>& list, std::int64_t slots) {
    shard_gradient(block, list);
    if (world_ > 1) whole_sums(block, list, slots);
  }

  void states();
  void optimizer(const std::string& block, const std::vector<Tensor>& list);
  void ends();
  void head(const std::string& block, bool train);
  void stream(const std::string& block, unsigned parts, bool checkpoint);
  void layer_gradient(const std::string& block, unsigned parts);
  void rows_forward(const std::string& block, const LayerClass& choice, bool recompute);
  void project(const std::string& block, const LayerClass& choice, bool recompute);
  void forward(const std::string& block, const LayerClass& choice, bool from_checkpoint,
               bool to_checkpoint);
  void backward(const std::string& block, const LayerClass& choice, bool from_checkpoint);
  void tiles_backward(const std::string& block, const LayerClass& choice);

  // A tensor class of the layer class at hand, `width` elements of `each` bytes a row.
  [[nodiscard]] Class of(TensorClass tensor, const LayerClass& choice, std::int64_t rows,
                         std::int64_t width, std::int64_t each, bool across) const {
    Class one{std::string(word(tensor)) + suffix_, rows * width * each, across ? count_ : 1,
              choice.kept(tensor)};
    if (tensor == TensorClass::kv || tensor == TensorClass::dkv) one.row = width * each;
    one.across = across;
    return one;
  }
  [[nodiscard]] std::int64_t q_width() const { return shape_.heads * model_.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * shape_.kv_heads * model_.head_dim; }
  [[nodiscard]] std::int64_t hidden_chunk() const { return local_ * model_.hidden * element_; }
  [[nodiscard]] std::int64_t ffn_rows() const {
    return fpdt_.ffn_tile_rows > 0 ? std::min(fpdt_.ffn_tile_rows, local_) : local_;
  }

  struct Line {
    MemorySpace space;
    Category category;
    Bytes bytes;
    bool lasting;  // counted in every neighbourhood: states, and what lives from forward to backward
  };

  const Strategy& strategy_;
  const ModelSpec& model_;
  const FpdtStrategy& fpdt_;
  Geometry shape_;
  std::int64_t world_, ranks_, chunks_, local_, rows_, element_, overlap_;
  std::string suffix_;      // of the layer class at hand
  std::int64_t count_ = 0;  // its layers
  std::map<std::string, Line> lines_;
  std::map<std::string, std::set<std::string>> blocks_;
};

BlockBytes Formula::by_block() const {
  BlockBytes bytes;
  for (const auto& [block, names] : blocks_) {
    for (const std::string& name : names) {
      const Line& line = lines_.at(name);
      bytes[{block, line.space, line.category}] += line.bytes;
    }
  }
  return bytes;
}

Prediction Formula::predict() const {
  // Blocks whose ops can be in flight together. A layer's block stands for all of its kind.
  using Kinds = std::vector<std::string_view>;
  std::vector<Kinds> neighbourhoods{
      {"begin", "tokens", "gather_embed", "embed", "gather", "forward"},
      {"gather", "forward", "gather_head", "head"},
      {"gather_head", "head", "gather_backward", "gather_rerun", "rerun", "backward"},
      {"backward", "embed_backward", "grad_norm"},
      {"embed_backward", "grad_norm", "optimizer", "finish"}};
  if (strategy_.micro_batches > 1) {
    neighbourhoods.push_back({"backward", "embed_backward", "tokens", "gather_embed", "embed", "gather"});
    neighbourhoods.push_back({"embed_backward", "tokens", "gather_embed", "embed", "gather", "forward"});
  }
  // "forward" stands for forward_0, forward_first, ..., but "gather" not for gather_embed.
  const auto kind = [](const std::string& block, std::string_view word) {
    if (!block.starts_with(word)) return false;
    const std::string_view rest = std::string_view(block).substr(word.size());
    constexpr std::array<std::string_view, 7> places{"",        "_first", "_middle",  "_inside",
                                                     "_last", "_layer", "_evaluate"};
    return std::find(places.begin(), places.end(), rest) != places.end() ||
           (rest.size() == 2 && rest[0] == '_' && rest[1] >= '0' && rest[1] <= '9');
  };
  std::array<Bytes, 3> lasting{};
  for (const auto& [name, line] : lines_) {
    if (line.lasting) lasting[static_cast<std::size_t>(line.space)] += line.bytes;
  }
  std::array<Bytes, 3> peak{};
  for (const Kinds& kinds : neighbourhoods) {
    std::set<std::string> together;
    for (const auto& [block, names] : blocks_) {
      const bool here = std::any_of(kinds.begin(), kinds.end(),
                                    [&](std::string_view word) { return kind(block, word); });
      if (here) together.insert(names.begin(), names.end());
    }
    std::array<Bytes, 3> sum = lasting;
    for (const std::string& name : together) {
      const Line& line = lines_.at(name);
      if (!line.lasting) sum[static_cast<std::size_t>(line.space)] += line.bytes;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) peak[i] = std::max(peak[i], sum[i]);
  }
  // An arena is whole pages.
  for (Bytes& bytes : peak) bytes.value = round_up(bytes.value, kPageBytes);
  return {peak[0], peak[1], peak[2]};
}

void Formula::states() {
  const std::vector<Tensor> layers = layer_list();
  const std::vector<Tensor> global = globals({});
  const bool several = world_ > 1;
  for (const char* block : {"begin", "begin_evaluate"}) {
    host_scalar(block, "step_input", 4);
    scalar(block, "step", 4);
    scalar(block, "loss", 1);
  }
  scalar("begin", "grad_norm", 1);
  shard_gradient("begin", global);
  shard_gradient("begin_layer", layers);
  shard_gradient("grad_norm_layer", layers);
  scalar("grad_norm_layer", "grad_norm", 1);
  shard_gradient("grad_norm", global);
  scalar("grad_norm", "grad_norm", 1);
  if (several) scalar("grad_norm", "grad_norm_total", 1);
  optimizer("optimizer_layer", layers);
  optimizer("optimizer", global);
  for (const char* block : {"finish", "finish_evaluate"}) {
    scalar(block, "loss", 1);
    if (several) scalar(block, "loss_total", 1);
    host_scalar(block, "loss_output", 1);
  }
  scalar("finish", several ? "grad_norm_total" : "grad_norm", 1);
  host_scalar("finish", "grad_norm_output", 1);
  if (!several) return;
  const auto gather = [&](const char* block, const std::vector<Tensor>& list, std::int64_t slots) {
    shard(block, list);
    weights(block, list, slots);
  };
  gather("gather", layers, 2);
  gather("gather_backward", layers, 2);
  if (fpdt_.checkpoint_every > 1) gather("gather_rerun", layers, 2);
  gather("gather_embed", globals({"embed.weight", "positions.weight"}), 1);
  gather("gather_head", globals({"final_norm.weight", "final_norm.bias", "head.weight"}), 1);
}

void Formula::optimizer(const std::string& block, const std::vector<Tensor>& list) {
  scalar(block, "step", 4);
  scalar(block, world_ > 1 ? "grad_norm_total" : "grad_norm", 1);
  shard(block, list);
  shard_gradient(block, list);
  const bool offload = strategy_.optimizer_offload;
  constexpr std::int64_t kTile = kAlignment / 4;
  for (const Tensor& tensor : list) {
    const std::int64_t tile =
        offload ? round_up(std::min(strategy_.optimizer_tile, piece(tensor)), kTile) : piece(tensor);
    const std::int64_t slots = tensor.count * div_ceil(piece(tensor), tile);
    for (const char* kind : {"master.", "moment1.", "moment2."}) {
      if (std::string_view(kind) == "master." && !offload && element_ == 4) continue;
      add(block, kind + tensor.spec.name, offload ? MemorySpace::host_pinned : MemorySpace::device,
          Category::optimizer, slots, 4 * tile, true);
    }
  }
  if (!offload) return;
  std::int64_t longest = 0;
  for (const auto& all : {layer_list(), globals({})}) {
    for (const Tensor& tensor : all) longest = std::max(longest, piece(tensor));
  }
  for (const char* kind : {"stage_master", "stage_moment1", "stage_moment2"}) {
    // Nothing but the copy lane holds the first fetches back: they may run ahead of the whole step.
    add(block, kind, MemorySpace::device, Category::optimizer, 2,
        4 * round_up(std::min(strategy_.optimizer_tile, longest), kTile), true);
  }
}

void Formula::stream(const std::string& block, unsigned parts, bool checkpoint) {
  const std::int64_t every = fpdt_.checkpoint_every;
  home(block,
       {checkpoint ? "layer_input" : "segment_input", hidden_chunk(),
        checkpoint ? model_.layers / every + 1 : every - 1,
        fpdt_.layer_classes.front().kept(TensorClass::layer_input), 2, 0,
        1 + fpdt_.prefetch_depth + 2 * overlap_, checkpoint},
       parts);
}

void Formula::layer_gradient(const std::string& block, unsigned parts) {
  home(block,
       {"layer_gradient", hidden_chunk(), 1,
        fpdt_.layer_classes.front().kept(TensorClass::layer_gradient)},
       parts);
}

void Formula::ends() {
  const auto tokens = [&](const char* block, const char* name, std::int64_t rows) {
    add(block, name, MemorySpace::device, Category::tokens, 1, 4 * rows, true);
  };
  for (const char* name : {"documents", "tokens", "labels"}) {
    const std::int64_t rows =
        name == std::string_view("documents") ? shape_.padded_tokens : shape_.local_tokens();
    tokens("tokens", name, rows);
    add("tokens", name + std::string("_input"), MemorySpace::host, Category::tokens,
        strategy_.micro_batches, 4 * rows, true);
  }
  const std::vector<Tensor> embed = globals({"embed.weight", "positions.weight"});
  for (const char* block : {"embed", "embed_backward"}) {
    tokens(block, "tokens", shape_.local_tokens());
    if (model_.learned_positions > 0) tokens(block, "documents", shape_.padded_tokens);
  }
  weights("embed", embed, 1);
  stream("embed", kKept | kNew | kHost, true);
  gradient_sums("embed_backward", embed, 1);
  layer_gradient("embed_backward", kKept | kHost | kFetched);
  head("head", true);
  head("head_evaluate", false);
}

// The loss holds one tile of logits in f32 and its gradient in storage (un-chunked: 14 bytes a logit).
void Formula::head(const std::string& block, bool train) {
  std::vector<Tensor> used = globals({"final_norm.weight", "final_norm.bias",
                                      model_.tied_embeddings ? "embed.weight" : "head.weight"});
  const std::int64_t tile =
      fpdt_.loss_tile_rows > 0 ? std::min(fpdt_.loss_tile_rows, local_) : local_;
  const std::int64_t words = fpdt_.loss_tile_vocab > 0
                                 ? std::min(fpdt_.loss_tile_vocab, model_.vocabulary)
                                 : model_.vocabulary;
  weights(block, used, 1);
  add(block, "labels", MemorySpace::device, Category::tokens, 1, 4 * shape_.local_tokens(), true);
  scalar(block, "step", 4);
  scalar(block, "loss", 1);
  stream(block, kKept | kHost | kFetched, true);
  activation(block, "head_norm", 1, tile * model_.hidden * element_);
  activation(block, "logits", 1, 4 * tile * words);
  activation(block, "statistics", 1, 4 * tile * 3);
  if (!train) return;
  layer_gradient(block, kKept | kNew | kHost);
  activation(block, "logits_gradient", 1, tile * words * element_);
  activation(block, "head_norm_gradient", 1, 4 * tile * model_.hidden);
  // The sum of a tied embedding is reduced where it ends, in embed_backward.
  if (world_ > 1 && model_.tied_embeddings) {
    whole_sums(block, globals({"embed.weight"}), 1);
    std::erase_if(used, [](const Tensor& tensor) { return tensor.spec.name == "embed.weight"; });
  }
  gradient_sums(block, used, 1);
}

void Formula::project(const std::string& block, const LayerClass& choice, bool recompute) {
  const bool all = choice.recompute == Recompute::keep_all;
  const unsigned made = kKept | kNew | (all || recompute ? kHost : 0U);
  if (all) {
    home(block, of(TensorClass::norm_output, choice, local_, model_.hidden, element_, true), made);
  }
  home(block, of(TensorClass::q, choice, rows_, q_width(), element_, all), made);
  home(block, of(TensorClass::kv, choice, rows_, kv_width(), element_, all), kKept | kNew | kHost);
  staging(block, "q_send", rows_ * q_width() * element_);
  staging(block, "kv_send", rows_ * kv_width() * element_);
}

// project, attention tiles and the way of their output back, for every chunk.
void Formula::rows_forward(const std::string& block, const LayerClass& choice, bool recompute) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  project(block, choice, recompute);
  home(block, of(TensorClass::kv, choice, rows_, kv_width(), element_, all), kFetched);
  activation(block, "o", 1 + overlap_, 4 * rows_ * q_width());
  const unsigned made = kKept | kNew | (!from_input || recompute ? kHost : 0U);
  home(block, of(TensorClass::lse, choice, rows_, shape_.heads, 4, !from_input), made);
  home(block, of(TensorClass::attention_output, choice, local_, model_.q_width(), element_, !from_input),
       made);
  if (element_ != 4) staging(block, "o_send", rows_ * q_width() * element_);
  staging(block, "o_receive", rows_ * q_width() * element_);
}

void Formula::forward(const std::string& block, const LayerClass& choice, bool from_checkpoint,
                      bool to_checkpoint) {
  weights(block, layer_list(), 2);
  add(block, "documents", MemorySpace::device, Category::tokens, 1, 4 * shape_.padded_tokens, true);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  stream(block, kKept | kNew | kHost, to_checkpoint);
  activation(block, "normed", 1, hidden_chunk());
  activation(block, "qkv", 1, local_ * model_.qkv_width() * element_);
  rows_forward(block, choice, false);
  activation(block, "act", 1, ffn_rows() * model_.feed_forward * element_);
  if (choice.recompute == Recompute::keep_all) {
    home(block, of(TensorClass::residual, choice, local_, model_.hidden, element_, true),
         kKept | kNew | kHost);
    home(block, of(TensorClass::ffn_hidden, choice, local_, model_.up_width(), element_, true),
         kKept | kNew | kHost);
    return;
  }
  activation(block, "residual_chunk", 1, hidden_chunk());
  activation(block, "up", 1, ffn_rows() * model_.up_width() * element_);
}

void Formula::backward(const std::string& block, const LayerClass& choice, bool from_checkpoint) {
  const bool fused = fpdt_.backward_order == BackwardOrder::q_outer;
  // Biases are read where forward is repeated: that of the last product never, of the others not when all
  // is kept (but the second norm is always repeated).
  std::vector<Tensor> read_weights = layer_list();
  std::erase_if(read_weights, [&](const Tensor& tensor) {
    const std::string& name = tensor.spec.name;
    const bool all = choice.recompute == Recompute::keep_all;
    return name == "down.bias" || (all && name.ends_with(".bias") && name != "norm2.bias");
  });
  weights(block, read_weights, 2);
  gradient_sums(block, layer_list(), 2);
  add(block, "documents", MemorySpace::device, Category::tokens, 1, 4 * shape_.padded_tokens, true);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  layer_gradient(block, kKept | kNew | kHost | kFetched);
  activation(block, "normed", 1, hidden_chunk());
  activation(block, "norm_gradient", 1, hidden_chunk());
  activation(block, "qkv", 1, local_ * model_.qkv_width() * element_);
  if (choice.recompute == Recompute::from_input) rows_forward(block, choice, true);
  if (choice.recompute == Recompute::keep_attention) project(block, choice, true);
  if (choice.recompute == Recompute::keep_all) {
    const unsigned read = kKept | kHost | kFetched;
    home(block, of(TensorClass::norm_output, choice, local_, model_.hidden, element_, true), read);
    home(block, of(TensorClass::residual, choice, local_, model_.hidden, element_, true), read);
    home(block, of(TensorClass::ffn_hidden, choice, local_, model_.up_width(), element_, true), read);
  } else {
    activation(block, "residual_chunk", 1, hidden_chunk());
    activation(block, "up", 1, ffn_rows() * model_.up_width() * element_);
  }
  activation(block, "act", 1, ffn_rows() * model_.feed_forward * element_);
  activation(block, "act_gradient", 1, ffn_rows() * model_.feed_forward * element_);
  activation(block, "up_gradient", 1, ffn_rows() * model_.up_width() * element_);
  Class dh = of(TensorClass::residual_gradient, choice, local_, model_.hidden, element_, false);
  if (fused) {
    dh.keep = 0;
    dh.produced = 2 + overlap_;
  }
  home(block, dh, fused ? kNew : kKept | kNew | kHost | kFetched);
  tiles_backward(block, choice);
  if (ranks_ == 1) return;
  activation(block, "dcontext", 1, local_ * model_.q_width() * element_);
  activation(block, "delta_chunk", 1, 4 * local_ * model_.heads);
  staging(block, "dout_send", rows_ * q_width() * element_);
  staging(block, "delta_send", 4 * rows_ * shape_.heads);
  staging(block, "dq_receive", rows_ * q_width() * element_);
  staging(block, "dkv_receive", rows_ * kv_width() * element_);
  if (element_ == 4) return;
  staging(block, "dq_send", rows_ * q_width() * element_);
  staging(block, "dkv_send", rows_ * kv_width() * element_);
}

// What attention tiles read and sum: the query side, K/V, and the accumulator that streams.
void Formula::tiles_backward(const std::string& block, const LayerClass& choice) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  const bool fused = fpdt_.backward_order == BackwardOrder::q_outer;
  const unsigned read = kKept | kHost | kFetched;
  home(block, of(TensorClass::q, choice, rows_, q_width(), element_, all), read);
  home(block, of(TensorClass::kv, choice, rows_, kv_width(), element_, all), read);
  home(block, of(TensorClass::lse, choice, rows_, shape_.heads, 4, !from_input), read);
  home(block, of(TensorClass::attention_output, choice, local_, model_.q_width(), element_, !from_input),
       read);
  Class dout = of(TensorClass::dout, choice, rows_, q_width(), element_, false);
  Class delta = of(TensorClass::dout, choice, rows_, shape_.heads, 4, false);
  delta.name = "delta" + suffix_;
  if (fused) dout.keep = delta.keep = 0;
  home(block, dout, fused ? kNew : read | kNew);
  home(block, delta, fused ? kNew : read | kNew);
  const Class streamed = fused ? of(TensorClass::dkv, choice, rows_, kv_width(), 4, false)
                               : of(TensorClass::dq, choice, rows_, q_width(), 4, false);
  home(block, streamed, read | kNew);
  const std::int64_t own = 4 * rows_ * (fused ? q_width() : kv_width());
  activation(block, fused ? "dq_sum" : "dkv_sum", 1 + overlap_, own);
  if (kept(streamed.keep) < chunks_) {
    activation(block, fused ? "dkv_diagonal" : "dq_diagonal", 1 + overlap_, streamed.chunk);
  }
}

}  // namespace

BlockBytes closed_form(const Problem& problem, const Strategy& strategy) {
  Formula formula(problem, strategy);
  formula.evaluate();
  return formula.by_block();
}

Prediction predict(const Problem& problem, const Strategy& strategy) {
  Formula formula(problem, strategy);
  formula.evaluate();
  return formula.predict();
}

}  // namespace fpdt
