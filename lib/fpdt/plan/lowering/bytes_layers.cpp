// FPDT's bytes of a layer, forward and backward.
#include <algorithm>

#include "fpdt/plan/lowering/formula.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {

void BytesFormula::project(const std::string& block, const LayerClass& choice, bool recompute) {
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

// Workspace of the largest attention tile. Forward does not depend on the keys. A backward tile has
// the keys of one chunk, or of all chunks up to its own whose K/V and their gradients are on the
// device; the last chunk may be shorter.
std::int64_t BytesFormula::workspace_bytes(const LayerClass& choice) const {
  if (!fused_attention(problem_, strategy_)) return 0;
  const auto bytes = [&](AttentionDirection direction, std::int64_t rows, std::int64_t keys) {
    return attention_workspace_bytes(direction, rows, keys, shape_.heads, shape_.kv_heads,
                                     model_.head_dim)
        .value;
  };
  using enum AttentionDirection;
  const std::int64_t last = shape_.last_chunk_rows;
  const std::int64_t least = std::max(
      {bytes(forward, rows_, rows_), bytes(backward, rows_, rows_), bytes(backward, last, rows_)});
  if (!strategy_.tiles.long_tiles || strategy_.tiles.backward_order != BackwardOrder::q_outer)
    return least;
  const std::int64_t resident =
      std::min(kept(choice.kept(TensorClass::kv)), kept(choice.kept(TensorClass::dkv)));
  if (resident == 0) return least;
  const std::int64_t before = (resident - 1) * shape_.chunk_rows;
  return std::max({least, bytes(backward, last, before + last),
                   bytes(backward, rows_, std::max(rows_, before))});
}

// project, attention tiles and the return of their output, for every chunk.
void BytesFormula::rows_forward(const std::string& block, const LayerClass& choice,
                                bool recompute) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  project(block, choice, recompute);
  home(block, of(TensorClass::kv, choice, rows_, kv_width(), element_, all), kFetched);
  activation(block, "o", 1 + overlap_, 4 * rows_ * q_width());
  workspace(block);
  const unsigned made = kKept | kNew | (!from_input || recompute ? kHost : 0U);
  home(block, of(TensorClass::lse, choice, rows_, shape_.heads, 4, !from_input), made);
  home(block,
       of(TensorClass::attention_output, choice, local_, model_.q_width(), element_, !from_input),
       made);
  if (element_ != 4) staging(block, "o_send", rows_ * q_width() * element_);
  staging(block, "o_receive", rows_ * q_width() * element_);
}

void BytesFormula::forward(const std::string& block, const LayerClass& choice, bool from_checkpoint,
                           bool to_checkpoint) {
  weights(block, layer_list(), 2);
  documents(block);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  stream(block, kKept | kNew | kHost, to_checkpoint);
  activation(block, "normed", 1, hidden_chunk());
  activation(block, "qkv", 1, local_ * model_.qkv_width() * element_);
  rows_forward(block, choice, false);
  activation(block, "act", 1, ffn_rows() * model_.feed_forward * element_);
  if (choice.recompute == Recompute::keep_all) {
    residual(block, choice, kKept | kNew | kHost);
    home(block, of(TensorClass::ffn_hidden, choice, local_, model_.up_width(), element_, true),
         kKept | kNew | kHost);
    if (model_.parallel_residual) activation(block, "residual_chunk", 1, hidden_chunk());
    return;
  }
  activation(block, "residual_chunk", 1, hidden_chunk());
  activation(block, "up", 1, ffn_rows() * model_.up_width() * element_);
}

// The stream between attention and feed-forward. With parallel residuals backward does not use it.
void BytesFormula::residual(const std::string& block, const LayerClass& choice, unsigned parts) {
  if (model_.parallel_residual) return;
  home(block, of(TensorClass::residual, choice, local_, model_.hidden, element_, true), parts);
}

// Whether backward reads a bias. It reads biases where it repeats forward: never that of the last
// product; that of the output projection only to repeat the residual; that of qkv also where heads
// are normalised; others unless everything is kept, except that the second norm is always repeated.
bool BytesFormula::read_in_backward(const std::string& name, const LayerClass& choice) const {
  const bool all = choice.recompute == Recompute::keep_all;
  if (name == "down.bias") return false;
  if (name == "out.bias") return !all && !model_.parallel_residual;
  if (name == "qkv.bias") return !all || model_.qk_norm;
  return !all || !name.ends_with(".bias") || name == "norm2.bias";
}

void BytesFormula::backward(const std::string& block, const LayerClass& choice,
                            bool from_checkpoint) {
  const bool fused = strategy_.tiles.backward_order == BackwardOrder::q_outer;
  std::vector<Tensor> read_weights = layer_list();
  std::erase_if(read_weights,
                [&](const Tensor& tensor) { return !read_in_backward(tensor.spec.name, choice); });
  weights(block, read_weights, 2);
  gradient_sums(block, layer_list(), 2);
  documents(block);
  stream(block, kKept | kHost | kFetched, from_checkpoint);
  layer_gradient(block, kKept | kNew | kHost | kFetched);
  activation(block, "normed", 1, hidden_chunk());
  activation(block, "norm_gradient", 1, hidden_chunk());
  activation(block, "qkv", 1, local_ * model_.qkv_width() * element_);
  if (model_.qk_norm) {
    activation(block, "qkv_gradient", 1, local_ * model_.qkv_width() * element_);
  }
  if (choice.recompute == Recompute::from_input) rows_forward(block, choice, true);
  if (choice.recompute == Recompute::keep_attention) project(block, choice, true);
  if (choice.recompute == Recompute::keep_all) {
    const unsigned read = kKept | kHost | kFetched;
    home(block, of(TensorClass::norm_output, choice, local_, model_.hidden, element_, true), read);
    residual(block, choice, read);
    home(block, of(TensorClass::ffn_hidden, choice, local_, model_.up_width(), element_, true),
         read);
  } else {
    if (!model_.parallel_residual) activation(block, "residual_chunk", 1, hidden_chunk());
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

// The operands and sums of attention tiles: the query side, K/V, and the streamed accumulator.
void BytesFormula::tiles_backward(const std::string& block, const LayerClass& choice) {
  const bool all = choice.recompute == Recompute::keep_all;
  const bool from_input = choice.recompute == Recompute::from_input;
  const bool fused = strategy_.tiles.backward_order == BackwardOrder::q_outer;
  const unsigned read = kKept | kHost | kFetched;
  workspace(block);
  home(block, of(TensorClass::q, choice, rows_, q_width(), element_, all), read);
  home(block, of(TensorClass::kv, choice, rows_, kv_width(), element_, all), read);
  home(block, of(TensorClass::lse, choice, rows_, shape_.heads, 4, !from_input), read);
  home(block,
       of(TensorClass::attention_output, choice, local_, model_.q_width(), element_, !from_input),
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

}  // namespace fpdt
