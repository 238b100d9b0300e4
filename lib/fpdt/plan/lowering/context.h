// The context of every part of a lowering: the question, the schedule under construction, and the
// homes of tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/plan/lowering/home.h"
#include "fpdt/plan/lowering/stack.h"
#include "fpdt/plan/lowering/states.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/layer_places.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

// Homes of one layer class.
struct Homes {
  LayerClass choice;
  std::string suffix;      // of block names and buffers: "" or "_0", "_1", ...
  std::int64_t first = 0;  // its first layer, and how many
  std::int64_t count = 0;
  Home norm_output, q, kv, attention_output, lse, residual, ffn_hidden;
  Home residual_gradient, dout, delta, dq, dkv;
  Home kv_ring, dkv_ring, attention_sum, lse_sum;  // where keys go around a ring
};

// Where the residual stream enters or leaves a layer.
struct Stream {
  Home* home = nullptr;
  Instance instance;
  bool operator==(const Stream&) const = default;
};

// A block of layers of one kind that have the same homes.
struct LayerBlock {
  Visit visit = Visit::forward;
  const LayerKind* kind = nullptr;
  Homes* homes = nullptr;
  Version weights;       // which gather they come from
  Stream input, output;  // backward has no output
  Stream dy, dx;         // backward: the gradients of what the layer made and of what it read
  bool found = false;    // backward: a rerun has made the attention outputs that are not stored
  bool operator==(const LayerBlock&) const = default;
};

// The gradient of the attention output and delta, in sequence layout.
struct OutputGradient {
  Operand dcontext, delta;
};

// What a rank has of the keys of the member before it, where its queries see no others but their
// own, and of their gradients. No rows: whole runs go around the ring.
struct Halo {
  std::int64_t rows = 0;
  Home kv_ring, dkv_ring, dkv;
};

// A block of a layer under construction: its layer class and its mode.
struct LayerFrame {
  Visit visit = Visit::forward;
  const LayerKind* kind = nullptr;
  Homes* homes = nullptr;
  Version weights;
  Stream input, output, dy, dx;
  std::int64_t rows = 0;         // of chunks whose attention is computed, the first ones
  std::int64_t projections = 0;  // of chunks whose queries and keys are
  bool back = false;             // past the forward that a backward block repeats
  std::int64_t hops = 1;         // of keys that queries of such a layer meet
  std::int64_t arrivals = 0;     // hops whose keys have come in this block
  Halo halo;
  // By chunk; valid as long as their rings hold them.
  std::vector<Operand> q, kv, o, lse, dout, delta, dq, dkv;
  // By extent.
  std::vector<Operand> x, n1, attention_output, branch, dh, dn1;
  std::vector<OutputGradient> gradient;

  [[nodiscard]] bool stores(Recompute what) const { return homes->choice.recompute == what; }
};

struct Context {
  // `library`: which attention tiles a library computes. These need a workspace.
  Context(const Problem& problem, const Strategy& strategy, std::vector<LibraryTiles> library);

  void begin_block(const std::string& name);

  // The residual stream at a layer: what it reads and what it makes.
  [[nodiscard]] Stream input_of(const LayerPlace& at, Visit visit);
  [[nodiscard]] Stream output_of(const LayerPlace& at, Visit visit);
  // The gradient of what the layer reads, and of what it makes.
  [[nodiscard]] Stream input_gradient_of(const LayerPlace& at);
  [[nodiscard]] Stream output_gradient_of(const LayerPlace& at);
  // The input of the first layer and of the head, and their gradients.
  [[nodiscard]] Stream first_input();
  [[nodiscard]] Stream head_input();
  [[nodiscard]] Stream first_gradient();
  [[nodiscard]] Stream head_gradient();
  // Backward of a layer has read its gradient, and made the next.
  void advance_gradient();
  [[nodiscard]] std::int64_t segments() const { return places.back().segment + 1; }

  const Problem& problem;
  const Strategy& strategy;
  Geometry shape;
  ModelSpec part;  // what a rank computes of each layer
  std::vector<LibraryTiles> library;
  Builder builder;
  States states;
  std::vector<LayerPlace> places;  // of layers
  // The inputs of consecutive segments that keep as much of them, and of the layers within. Those
  // live in forward until the next layer has read them, and from the rerun to backward.
  struct StoredInputs {
    Home home;
    Stack instances;
    std::int64_t end = 0;          // segment after these; the head is one
    std::optional<Home> gradient;  // in the same slots: the gradients of the inputs
  };
  std::vector<StoredInputs> layer_inputs;
  // Attention outputs and lse of all layers that keep them until backward, where some are made
  // again: on the host, in a ring that they share.
  struct StoredOutputs {
    Stack output, lse;
    BufferIndex output_ring = -1, lse_ring = -1;
    // Outputs are in one ring with layer inputs, where both have slots of one shape.
    bool beside_inputs = false;
  };
  std::optional<StoredOutputs> stored_outputs;
  std::vector<Homes> homes;
  // Homes that layers use in turn, of all classes that keep as much of a tensor.
  struct HomeInTurn {
    std::string name;
    double fraction;
    bool stored;
    Home home;
  };
  std::vector<HomeInTurn> homes_in_turn;
  BufferIndex tokens = -1, labels = -1, documents = -1;

 private:
  void make_homes();
  [[nodiscard]] std::vector<const LayerPlace*> groups_of_inputs() const;
  void make_stored_outputs();
  void make_inputs();
  // The instance at some versions of the stacks of these inputs.
  template <class VersionOf>
  [[nodiscard]] Instance instance_of(const StoredInputs& inputs, VersionOf version_of) const;
  [[nodiscard]] StoredInputs& inputs_at(std::int64_t segment);
  // The gradient of the input of a layer. `apart`: its instance where it has memory of its own.
  [[nodiscard]] Stream gradient_of(const LayerPlace& at, const Instance& apart);
  [[nodiscard]] Stream head_stream(Stream stream) const;
  template <class StreamOf>
  [[nodiscard]] Stream after(const LayerPlace& at, StreamOf stream_of);

  Home layer_gradient_;  // where it is apart from inputs
};

// The base of all parts, which share one context.
class LoweringPart {
 protected:
  explicit LoweringPart(Context& context)
      : context_(context),
        problem_(context.problem),
        strategy_(context.strategy),
        model_(problem_.model),
        part_(context.part),
        shape_(context.shape),
        ranks_(shape_.sequence_parallel),
        head_ranks_(shape_.head_ranks()),
        storage_(storage_type(strategy_)),
        builder_(context.builder),
        states_(context.states) {}

  // Declares rows of activations on the device; one block at a time uses them. The slots fit the
  // longest chunk.
  BufferId rows_of_width(const char* name, std::int64_t rows, std::int64_t width, Dtype dtype,
                         std::int64_t slots = 1, Category category = Category::activations);
  // The next version of a declared ring in this block; a shorter chunk uses the first rows.
  Operand temporary(BufferId id, std::int64_t rows);
  [[nodiscard]] static Operand rows_of(const Operand& operand, std::int64_t first,
                                       std::int64_t rows);
  [[nodiscard]] Operand optional_weight(const std::string& name, const Version& use) const;
  // Absent when every sequence is one document.
  [[nodiscard]] Operand documents() const;
  // The instance of what a layer stores across the step.
  [[nodiscard]] static Instance stored_instance(const Homes& homes);
  // The instances of attention's inputs and of its outputs.
  [[nodiscard]] Instance inputs(const LayerFrame& frame) const;
  [[nodiscard]] Instance outputs(const LayerFrame& frame) const;

  // The first token of a chunk that this rank holds, the first on which it computes its part of
  // products, and the first query that it attends.
  [[nodiscard]] RankExpression token_first(std::int64_t chunk) const;
  [[nodiscard]] RankExpression product_first(std::int64_t chunk) const;
  [[nodiscard]] RankExpression query_first(std::int64_t chunk) const;
  // The first key of those that came so many hops, each from the member before, and how many came.
  [[nodiscard]] RankExpression key_first(const LayerFrame& frame, std::int64_t chunk,
                                         std::int64_t hop) const;
  [[nodiscard]] std::int64_t key_rows(const LayerFrame& frame, std::int64_t chunk,
                                      std::int64_t hop) const {
    return hop > 0 && frame.halo.rows > 0 ? frame.halo.rows : shape_.key_rows(chunk);
  }
  // Of the keys of a chunk, or of their gradients, those that go on to this hop: the last ones.
  [[nodiscard]] Operand keys_of_hop(const LayerFrame& frame, const Operand& keys,
                                    std::int64_t chunk, std::int64_t hop) const;
  [[nodiscard]] std::int64_t extent_first(std::int64_t extent) const;
  // The rows of a chunk in an operand that holds an extent.
  [[nodiscard]] Operand chunk_of(const Operand& extent, std::int64_t chunk) const;
  // Whether a loop over chunks, up or down, meets the chunk's extent for the first or last time.
  enum class Loop : std::uint8_t { up, down };
  [[nodiscard]] bool enters(std::int64_t chunk, Loop loop) const;
  [[nodiscard]] bool leaves(std::int64_t chunk, Loop loop) const;
  [[nodiscard]] Loop backward_loop() const;
  [[nodiscard]] std::int64_t q_width() const { return shape_.heads * model_.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return 2 * shape_.kv_heads * model_.head_dim; }
  [[nodiscard]] LaneKind out_lane() const;
  [[nodiscard]] Home::Reuse reuse() const;
  // Whether several ranks share each product.
  [[nodiscard]] bool shares_products() const { return shape_.tensor_ranks > 1; }
  [[nodiscard]] bool overlaps() const { return strategy_.copies.overlap_all_to_all; }

  Context& context_;
  const Problem& problem_;
  const Strategy& strategy_;
  const ModelSpec& model_;
  const ModelSpec& part_;  // what a rank computes of each layer
  const Geometry& shape_;
  std::int64_t ranks_, head_ranks_;  // P, of the sequence; U, of an all-to-all
  Dtype storage_;
  Builder& builder_;
  States& states_;
};

}  // namespace fpdt
