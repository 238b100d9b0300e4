// The passage between a rank's own rows and its own heads: an all-to-all, or nothing with one rank.
// In a ring, ranks have the same heads: each keeps its queries and gathers the keys of all.
#pragma once

#include "fpdt/plan/lowering/context.h"

namespace fpdt {

class Transition : public LoweringPart {
 public:
  explicit Transition(Context& context);

  // Rows of qkv: fused, or queries apart from keys and values.
  struct Projected {
    Operand queries, keys;  // keys are absent where both are fused
  };
  // q_i and kv_i in head layout from the rows of qkv_i, or one of them.
  void to_heads(LayerFrame& frame, std::int64_t chunk, const Projected& qkv);
  void queries_to_heads(LayerFrame& frame, std::int64_t chunk, const Operand& q);
  void keys_to_heads(LayerFrame& frame, std::int64_t chunk, const Operand& kv);
  // Sends the attention output of chunk i back to sequence layout.
  void output_to_rows(LayerFrame& frame, std::int64_t chunk);
  // Receives it there, and stores what backward needs of this row.
  void join_output(LayerFrame& frame, std::int64_t chunk);

  // The place for the gradient of an extent's attention output.
  [[nodiscard]] OutputGradient output_gradient(LayerFrame& frame, std::int64_t extent);
  void output_gradient_to_heads(LayerFrame& frame, std::int64_t chunk);
  // Sends dq_i and dkv_i back to sequence layout.
  void gradients_to_rows(LayerFrame& frame, std::int64_t chunk, const Operand& dq,
                         const Operand& dkv);
  // The gradient of qkv_i from both. The norm of each head needs `qkv`, q and k before
  // normalisation; the ones in their homes are normalised.
  void join_gradients(LayerFrame& frame, std::int64_t chunk, const Projected& qkv,
                      const Projected& dqkv);

 private:
  // The ranks of a ring in the order of their runs of the chunk.
  [[nodiscard]] const char* ring_of(std::int64_t chunk) const {
    return shape_.reversed(chunk) ? "ring_reversed" : "ring";
  }
  struct Sent {
    Operand q, kv;
  };
  Operand own_keys(std::int64_t chunk, const Operand& kv);
  Operand send_of(BufferId staging, std::int64_t chunk, const Operand& value);
  void gather_keys(std::int64_t chunk, const Operand& own, const Operand& kv);
  void hold_keys(LayerFrame& frame, std::int64_t chunk, const Operand& kv);
  Operand summed_over_ring(const Operand& dkv, std::int64_t chunk);
  // Whether a chunk's rows in both layouts are the same tensor.
  [[nodiscard]] bool one_layout() const {
    return head_ranks_ == 1 && shape_.extents == shape_.chunks;
  }
  // Sets the fields that SplitHeads and JoinHeads share.
  enum class Which : std::uint8_t { all, queries, keys };
  template <class Heads>
  void describe_heads(Heads& body, const LayerFrame& frame, std::int64_t chunk, Which which) const;
  void split_heads(const LayerFrame& frame, std::int64_t chunk, const Operand& rows, Which which,
                   const Operand& q, const Operand& kv);
  void join_heads(const LayerFrame& frame, std::int64_t chunk, const Operand& rows,
                  const Operand& gradient, Which which);
  [[nodiscard]] Rotary rotary(const LayerKind& kind) const;
  // A joint norm is of rows, before they become heads.
  [[nodiscard]] bool norms_each_head() const { return model_.qk_norm && !model_.joint_qk_norm; }

  BufferId kv_own_, dkv_own_;  // of this rank, where keys are gathered
  BufferId dcontext_, delta_;
  // The buffers that all-to-alls send and receive.
  BufferId q_send_, kv_send_, o_send_, o_receive_, dout_send_, delta_send_;
  BufferId dq_send_, dkv_send_, dq_receive_, dkv_receive_;
};

}  // namespace fpdt
