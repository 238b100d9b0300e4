// The formula of FPDT's bytes, as a list of lines: each is one ring, with the blocks that use it.
// Internal to plan/methods; the arithmetic is in fpdt_bytes.cpp and fpdt_bytes_layers.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/plan/bytes.h"
#include "fpdt/schedule/sum_workspace.h"

namespace fpdt {

// Parts of a home that a block uses.
enum HomePart : unsigned { kKept = 1, kNew = 2, kHost = 4, kFetched = 8 };

class BytesFormula {
 public:
  BytesFormula(const Problem& problem, const Strategy& strategy)
      : problem_(problem),
        strategy_(strategy),
        model_(problem.model),
        shape_(geometry(problem, strategy)),
        world_(problem.ranks()),
        ranks_(shape_.sequence_parallel),
        chunks_(shape_.chunks),
        local_(shape_.local_rows(0)),
        rows_(shape_.rows(0)),
        element_(strategy.storage == Storage::f32 ? 4 : 2),
        overlap_(strategy_.copies.overlap_all_to_all ? 1 : 0) {}

  void evaluate() {
    for (const auto& list : {layer_list(), globals({})}) {
      for (const Tensor& tensor : list) longest_piece_ = std::max(longest_piece_, piece(tensor));
    }
    for (const LayerClass& choice : strategy_.layer_classes) {
      workspace_ = std::max(workspace_, workspace_bytes(choice));
    }
    states();
    ends();
    std::int64_t first = 0;
    for (std::size_t c = 0; c < strategy_.layer_classes.size(); ++c) {
      const LayerClass& choice = strategy_.layer_classes[c];
      count_ = choice.layers > 0 ? choice.layers : model_.layers - first;
      first += count_;
      suffix_.clear();
      if (strategy_.layer_classes.size() > 1) suffix_.append(1, '_').append(std::to_string(c));
      if (strategy_.checkpoint_every() == 1) {
        forward("forward" + suffix_, choice, true, true);
        backward("backward" + suffix_, choice, true);
        continue;
      }
      const bool several = strategy_.checkpoint_every() > 2;
      const bool stored = choice.recompute == Recompute::keep_attention;
      LayerClass plain = choice;
      plain.recompute = Recompute::from_input;
      forward("forward_first", plain, true, false);
      forward("forward_last", plain, false, true);
      if (several) forward("forward_middle", plain, false, false);
      if (stored) backward("backward_last", plain, false);
      in_segment_ = stored;
      forward("rerun_first", choice, true, false);
      if (several) forward("rerun_middle", choice, false, false);
      backward("backward_first", choice, true);
      if (several || !stored) backward("backward_inside", choice, false);
    }
  }

  [[nodiscard]] BlockBytes by_block() const;
  [[nodiscard]] Prediction predict() const;

 private:
  // Adds a line: one ring, by name. Blocks that use the same ring share the line.
  void add(const std::string& block, const std::string& name, MemorySpace space, Category category,
           std::int64_t slots, std::int64_t slot_bytes, bool lasting = false);
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

  // One tensor class: `chunk` bytes a chunk, `instances` alive. A contiguous one holds exactly the
  // rows of its kept chunks, even if the last is shorter.
  struct Class {
    std::string name;
    std::int64_t chunk = 0, instances = 1;
    double keep = 0;
    std::int64_t produced = 2;
    std::int64_t row = 0;      // bytes of a row, when contiguous
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
      activation(block, one.name,
                 one.fetched > 0 ? one.fetched : 1 + strategy_.copies.prefetch_depth, one.chunk);
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
  // Whole tensors: gathered, or with one rank the shard itself.
  void weights(const std::string& block, const std::vector<Tensor>& list, std::int64_t slots) {
    if (world_ == 1) return shard(block, list);
    for (const Tensor& tensor : list) {
      add(block, "gathered." + tensor.spec.name, MemorySpace::device, Category::weights, slots,
          element_ * world_ * piece(tensor));
    }
  }
  void whole_sums(const std::string& block, const std::vector<Tensor>& list, std::int64_t slots) {
    for (const Tensor& tensor : list) {
      add(block, "gradient_sum." + tensor.spec.name, MemorySpace::device, Category::gradients,
          slots, 4 * world_ * piece(tensor));
    }
  }
  void gradient_sums(const std::string& block, const std::vector<Tensor>& list,
                     std::int64_t slots) {
    shard_gradient(block, list);
    if (world_ == 1) return;
    whole_sums(block, list, slots);
    sum_workspace(block);
  }

  // The workspace of the library's attention kernels: as large as the most demanding tile.
  void workspace(const std::string& block) {
    if (workspace_ > 0) activation(block, "workspace", 1, workspace_);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const LayerClass& choice) const;
  // The workspace of sums over ranks: as large as the longest tensor needs.
  void sum_workspace(const std::string& block) {
    const Bytes bytes = sum_workspace_bytes(world_, Bytes{4 * longest_piece_});
    activation(block, "sum_workspace", 1, bytes.value);
  }

  // Document starts of the whole sequence.
  void documents(const std::string& block) {
    if (!problem_.documents) return;
    add(block, "documents", MemorySpace::device, Category::tokens, 1, 4 * shape_.padded_tokens,
        true);
  }

  void states();
  void optimizer(const std::string& block, const std::vector<Tensor>& list);
  void ends();
  void head(const std::string& block, bool train);
  void stream(const std::string& block, unsigned parts, bool checkpoint);
  void layer_gradient(const std::string& block, unsigned parts);
  void residual(const std::string& block, const LayerClass& choice, unsigned parts);
  [[nodiscard]] bool read_in_backward(const std::string& name, const LayerClass& choice) const;
  void rows_forward(const std::string& block, const LayerClass& choice, bool recompute);
  void project(const std::string& block, const LayerClass& choice, bool recompute);
  void forward(const std::string& block, const LayerClass& choice, bool from_checkpoint,
               bool to_checkpoint);
  void backward(const std::string& block, const LayerClass& choice, bool from_checkpoint);
  void tiles_backward(const std::string& block, const LayerClass& choice);

  // A tensor class of this layer class, `width` elements of `each` bytes a row.
  [[nodiscard]] Class of(TensorClass tensor, const LayerClass& choice, std::int64_t rows,
                         std::int64_t width, std::int64_t each, bool across) const {
    Class one{std::string(word(tensor)) + suffix_, rows * width * each, across ? count_ : 1,
              choice.kept(tensor)};
    if (tensor == TensorClass::kv || tensor == TensorClass::dkv) one.row = width * each;
    one.across = across;
    // Outputs that repeats of a segment store die with the segment.
    const bool output = tensor == TensorClass::attention_output || tensor == TensorClass::lse;
    if (in_segment_ && output) {
      one.name += "_segment";
      one.instances = strategy_.checkpoint_every() - 1;
      one.across = false;
    }
    return one;
  }
  [[nodiscard]] std::int64_t q_width() const { return shape_.heads * model_.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * shape_.kv_heads * model_.head_dim; }
  [[nodiscard]] std::int64_t hidden_chunk() const { return local_ * model_.hidden * element_; }
  [[nodiscard]] std::int64_t ffn_rows() const {
    return strategy_.tiles.ffn_rows > 0 ? std::min(strategy_.tiles.ffn_rows, local_) : local_;
  }

  struct Line {
    MemorySpace space = MemorySpace::device;
    Category category = Category::activations;
    Bytes bytes;
    bool lasting =
        false;  // counted in every neighbourhood: states, and what lives from forward to backward
  };

  const Problem& problem_;
  const Strategy& strategy_;
  const ModelSpec& model_;
  Geometry shape_;
  std::int64_t world_, ranks_, chunks_, local_, rows_, element_, overlap_;
  std::string suffix_;      // of the current layer class
  std::int64_t count_ = 0;  // its layers
  std::int64_t workspace_ = 0;
  std::int64_t longest_piece_ = 0;  // of any tensor
  bool in_segment_ = false;         // blocks whose attention outputs live within a segment
  std::vector<Line> lines_;
  std::unordered_map<std::string, std::size_t> line_of_;                  // by name
  std::vector<std::pair<std::string, std::vector<std::size_t>>> blocks_;  // and their lines
};

}  // namespace fpdt
