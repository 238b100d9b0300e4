// The Fully Pipelined Distributed Transformer (Yao et al., arXiv 2408.16978) as a schedule.
//
// One rank's view of a layer, chunk by chunk (l rows of this rank, n = P*l rows after the
// all-to-all):
//
//   project(i)   x_i -> norm -> qkv -> heads apart -> all-to-all -> q_i, kv_i
//   tiles(i)     attention of q_i over kv_0 .. kv_i, fetched ahead; all-to-all of the output
//   finish(i)    + residual, norm, feed-forward in row tiles -> x_i of the next layer
//
// With parallel residuals the norm in finish reads x_i, so that backward of the feed-forward needs
// nothing of attention.
//
// Backward of a chunk is gradient(i) (finish reversed: feed-forward, output projection, all-to-all
// of the output's gradient), attention tiles in either loop order, and close(i) (project reversed).
// Nothing on the device is longer than a chunk unless the strategy keeps it. Internal to
// plan/methods.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/plan/lowering/home.h"
#include "fpdt/plan/lowering/rings.h"
#include "fpdt/plan/lowering/states.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

class Lowering {
 public:
  Lowering(const Problem& problem, const Strategy& strategy);
  Schedule lower();

 private:
  // Homes of one layer class.
  struct Homes {
    LayerClass choice;
    std::string suffix;      // of block names and buffers: "" or "_0", "_1", ...
    std::int64_t first = 0;  // its first layer, and how many
    std::int64_t count = 0;
    bool in_segment = false;  // what is stored lives within a segment of checkpoint_every layers
    Home norm_output, q, kv, attention_output, lse, residual, ffn_hidden;
    Home residual_gradient, dout, delta, dq, dkv;
  };
  // Where the residual stream enters or leaves a layer.
  struct Stream {
    Home* home = nullptr;
    Instance instance;
  };
  // A block under construction: its layer class and its mode.
  struct Frame {
    Homes* homes = nullptr;
    Pass pass = Pass::forward;
    Version weights;  // which gather its weights come from
    Stream input, output;
    std::vector<Operand> x, q, kv, o;  // by chunk, as long as their rings hold them
    std::vector<Operand> attention_output, lse, dout, delta, dh;
    std::vector<Operand> dq, dkv;
  };

  // A spill of the last attention tile, which goes after the fetches of the next.
  struct WaitingSpill {
    const Home* home = nullptr;
    Instance instance;
    std::int64_t chunk = 0;
    Operand value;
  };

  // Some rows of a chunk at the head of the model.
  struct LossTile {
    std::int64_t chunk = 0, first = 0, rows = 0;  // rows [first, first + rows) of the chunk
    std::int64_t wide = 0;                        // words of the largest tile
    std::string weight;
    Operand x, labels, normed, statistics, logits;
    [[nodiscard]] std::string name(const char* what, std::int64_t word = -1) const;
  };

  // fpdt_lowering.cpp
  Homes make_homes(const LayerClass& choice, std::size_t number, std::int64_t first,
                   std::int64_t count, bool in_segment = false);
  void begin_block(const std::string& name);
  void emit_tokens();
  void emit_programs();
  void call_forward(std::vector<Call>& calls, std::int64_t micro_batch);
  void call_backward(std::vector<Call>& calls, std::int64_t micro_batch);
  void emit_gathers();
  [[nodiscard]] Instance stored_instance(const Homes& homes) const;

  // fpdt_forward.cpp
  void forward_block(const std::string& name, Homes& homes, Pass pass, const Version& weights,
                     const Stream& input, const Stream& output);
  void emit_layers();
  void forward_rows(Frame& frame);
  void advance_repeated(const Homes& homes);
  void project(Frame& frame, std::int64_t chunk);
  void tiles(Frame& frame, std::int64_t chunk);
  void collect(Frame& frame, std::int64_t chunk);
  void finish(Frame& frame, std::int64_t chunk);

  // fpdt_backward.cpp
  void backward_block(const std::string& name, Homes& homes, const Version& weights,
                      const Stream& input);
  void gradient(Frame& frame, std::int64_t chunk);
  void ffn_gradient(Frame& frame, std::int64_t chunk, const Operand& h, const Operand& dy);
  void send_output_gradient(Frame& frame, std::int64_t chunk, const Operand& dctx,
                            const Operand& delta);
  void kv_outer(Frame& frame);
  void q_outer(Frame& frame);
  void backward_tile(Frame& frame, std::int64_t q_chunk, std::int64_t k_first, std::int64_t k_last,
                     const Operand& kv, const Target& dq, const Target& dkv);
  void spill_after_fetches(const WaitingSpill& spill);
  void emit_waiting_spill();
  void send_gradients(Frame& frame, std::int64_t chunk, const Operand& dq, const Operand& dkv);
  void close(Frame& frame, std::int64_t chunk);

  // fpdt_ends.cpp
  void emit_embed();
  void emit_embed_backward();
  void emit_head(const std::string& name, bool train);
  void loss_rows(std::int64_t chunk, std::int64_t first, std::int64_t rows, const Operand& x,
                 const Operand& dx, bool train);
  std::int64_t emit_logits(LossTile& tile, const char* name, std::int64_t word);
  void loss_gradient(LossTile& tile, const Operand& dx);

  // A temporary of this block on the device: the next version of its ring.
  Operand temporary(const std::string& name, std::int64_t rows);
  // Products and norms of the tensors "<layer>.weight" and "<layer>.bias" of gather `use`, over
  // `rows` rows: y [rows, out] = x [rows, in] * W^T + b + addend.
  void linear(const std::string& op, const std::string& layer, const Version& use, const Operand& x,
              const Operand& y, std::int64_t rows, std::int64_t in, std::int64_t out,
              const Operand& addend = {});
  // dx = dy * W.
  void linear_backward(const std::string& op, const std::string& layer, const Version& use,
                       const Operand& dy, const Operand& dx, std::int64_t rows, std::int64_t in,
                       std::int64_t out);
  // dW += dy^T * x and db += the column sums of dy, of the rank's tokens from `first`; ops
  // dw_<layer>.<place>.
  void linear_gradient(const std::string& place, const std::string& layer, const Operand& dy,
                       const Operand& x, std::int64_t rows, std::int64_t in, std::int64_t out,
                       std::int64_t first);
  void norm(const std::string& op, const std::string& layer, const Version& use, const Operand& x,
            const Operand& y, std::int64_t rows);
  // dx = d(norm)/dx^T dy + addend, dweight, dbias into the sums of version `sum`, over `rows` of
  // the rank's tokens from `local_first`.
  struct NormGradient {
    std::string layer;
    Version use, sum;
    Operand x, dy, addend, dx;
    std::int64_t rows, local_first;
  };
  void norm_backward(const std::string& op, const NormGradient& of);
  [[nodiscard]] Operand rows_of(const Operand& operand, std::int64_t first,
                                std::int64_t rows) const;
  [[nodiscard]] Operand optional_weight(const std::string& name, const Version& use) const;
  [[nodiscard]] Operand documents() const;
  // The next version of the workspace, of which a tile uses the part it needs; absent when none is
  // needed.
  Operand workspace();
  [[nodiscard]] RankExpression token_first(std::int64_t chunk) const;
  [[nodiscard]] RankExpression head_first() const;
  [[nodiscard]] Rotary rotary() const;
  // Sets the fields of SplitHeads and JoinHeads for the norm of heads.
  template <class Heads>
  void head_norm(Heads& body, const Version& use) const {
    body.q_weight = optional_weight("q_norm.weight", use);
    body.k_weight = optional_weight("k_norm.weight", use);
    if (model_.qk_norm) body.epsilon = model_.norm_epsilon;
  }
  [[nodiscard]] NormKind norm_kind() const;
  [[nodiscard]] ActivationKind activation_kind() const;
  [[nodiscard]] std::int64_t local_first(std::int64_t chunk) const;

  [[nodiscard]] LaneKind out_lane() const;
  [[nodiscard]] Home::Reuse reuse() const;
  [[nodiscard]] std::int64_t overlap() const { return strategy_.copies.overlap_all_to_all ? 1 : 0; }

  const Problem& problem_;
  const Strategy& strategy_;
  const ModelSpec& model_;
  Geometry shape_;
  std::int64_t ranks_;  // P, of the sequence
  Dtype storage_;
  Rings rings_;
  Builder builder_;
  States states_;
  std::vector<Homes> homes_;
  Home layer_input_, segment_input_, layer_gradient_;
  std::optional<WaitingSpill> waiting_spill_;
  BufferIndex tokens_ = -1, labels_ = -1, documents_ = -1;
};

}  // namespace fpdt
