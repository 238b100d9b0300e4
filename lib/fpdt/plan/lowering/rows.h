// Rows in sequence layout: norms, projections and the feed-forward, forward and backward. The
// projection to heads takes the rows of a chunk. All else takes an extent: a chunk, or all rows of
// the rank.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fpdt/plan/lowering/context.h"
#include "fpdt/plan/lowering/experts.h"
#include "fpdt/plan/lowering/products.h"
#include "fpdt/plan/lowering/tensor_ranks.h"
#include "fpdt/plan/lowering/transition.h"

namespace fpdt {

class Rows : public LoweringPart {
 public:
  Rows(Context& context, Transition& transition);

  // q_i and kv_i in head layout from x_i.
  void project(LayerFrame& frame, std::int64_t chunk);
  // q_i in head layout, again in backward, where it is not stored.
  void project_queries(LayerFrame& frame, std::int64_t chunk);
  // Residual, second norm and feed-forward of an extent: the input of the next layer.
  void feed_forward(LayerFrame& frame, std::int64_t extent);
  // dh_i from dy_i, and the gradient of the attention output, on its way to head layout.
  void feed_forward_backward(LayerFrame& frame, std::int64_t chunk);
  // Computes the gradient of the layer's input from dq_i, dkv_i and dh_i.
  void projection_backward(LayerFrame& frame, std::int64_t chunk);

 private:
  // Whether backward projects queries again, at their row.
  [[nodiscard]] bool again(const LayerFrame& frame) const {
    return frame.visit == Visit::backward && projects_queries_again(strategy_, frame.homes->choice);
  }
  Operand normed(const std::string& op, const std::string& layer, const LayerFrame& frame,
                 const Operand& x, std::int64_t rows);
  void normed_backward(const std::string& op, const Products::NormGradient& of);
  void first_norm(LayerFrame& frame, std::int64_t extent);
  void feed_forward_gradient(LayerFrame& frame, std::int64_t extent);
  Operand tiles_backward(LayerFrame& frame, std::int64_t extent, const Operand& h,
                         const Operand& dy);
  void out_product(LayerFrame& frame, std::int64_t extent, const Operand& context, const Operand& x,
                   const Operand& h);
  // Where a product goes that is normed before it joins `sum`: a ring of its own. Else to `sum`.
  Operand branch(BufferId ring, const Operand& sum, std::int64_t rows);
  // sum = norm(branch) + residual.
  void join(const std::string& layer, const LayerFrame& frame, const std::string& op,
            const Operand& branch, const Operand& residual, const Operand& sum, std::int64_t rows);
  // The gradient of the branch, of which `dy` is that of its norm.
  Operand branch_gradient(const std::string& layer, const LayerFrame& frame, std::int64_t extent,
                          const Operand& branch, const Operand& dy);
  // A feed-forward that is no expert: the layer's own, or what stands beside its experts.
  struct Dense {
    const char *up, *down;         // its weights
    std::string place;             // begins names of its ops after the first point: "" or "shared."
    std::int64_t width, up_width;  // of a rank's part
    BufferId up_rows, act, act_gradient, up_gradient;
    BufferId out = -1, input_gradient = -1;  // beside experts: what these are added to
  };
  // `suffix` ends the names of its buffers.
  Dense dense(const char* up, const char* down, std::int64_t width, const std::string& suffix);
  // That of the frame's layer; null if it has experts alone.
  [[nodiscard]] const Dense* dense_of(const LayerFrame& frame) const;
  [[nodiscard]] bool has_experts(const LayerFrame& frame) const {
    return experts_.has_value() && frame.kind->dense_feed_forward == 0;
  }
  // Rows [at, + rows) of the feed-forward before its output: up, which is stored or made now, and
  // the activation.
  struct Inner {
    Operand up, act;
  };
  Inner inner(const LayerFrame& frame, const Dense& of, const char* prefix,
              const std::string& place, const Operand& n2, const Operand& kept_up, std::int64_t at,
              std::int64_t rows);
  // The gradients of its weights, and dn2, of rows of which `made` has what it made.
  void dense_backward(const LayerFrame& frame, const Dense& of, const std::string& place,
                      const Inner& made, const Operand& n2, const Operand& dy, const Operand& dn2,
                      std::int64_t rows, std::int64_t first);
  // The gradient of what the feed-forward made; `last`: all of its rows, if one tile has them.
  Operand output_gradient(LayerFrame& frame, std::int64_t extent, const Operand& n2_all,
                          const Operand& kept_up, const Operand& dy, Inner& last);
  void first_norm_again(LayerFrame& frame, std::int64_t extent);
  void first_norm_gradient(LayerFrame& frame, std::int64_t extent);
  [[nodiscard]] Products::JointNorm joint_norm_of_queries(std::int64_t after) const;
  [[nodiscard]] Products::JointNorm joint_norm_of_keys(std::int64_t before) const;
  // Calls f(norm, part) for the joint norms of projected rows, and which part of them holds its
  // columns.
  template <class F>
  void joint_norms(F&& f) const {
    if (!model_.joint_qk_norm) return;
    using Projected = Transition::Projected;
    const bool fused = projections_.size() == 1;
    f(joint_norm_of_queries(fused ? 2 * part_.kv_width() : 0), &Projected::queries);
    f(joint_norm_of_keys(fused ? part_.q_width() : 0),
      fused ? &Projected::queries : &Projected::keys);
  }
  [[nodiscard]] std::int64_t ffn_tile() const;
  // Of the feed-forward of an extent: how many, and the first row of one with its count.
  [[nodiscard]] std::int64_t tiles_of(std::int64_t extent) const;
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> tile_rows(std::int64_t extent,
                                                                std::int64_t i) const;
  [[nodiscard]] ActivationKind activation_kind() const;

  Products products_;
  TensorRanks tensor_ranks_;
  Transition& transition_;
  // The products with qkv: of all its columns, or of queries, and of keys and values.
  struct Projection {
    const char* layer;
    std::int64_t width;
    BufferId rows, gradient;
  };
  [[nodiscard]] Transition::Projected qkv_products(const LayerFrame& frame, const char* prefix,
                                                   std::int64_t chunk, const Operand& n1);

  std::vector<Projection> projections_;
  BufferId q_alone_ = -1, kv_alone_ = -1;  // of backward that projects queries again
  std::optional<Experts> experts_;
  BufferId normed_, residual_, norm_gradient_;
  std::optional<Dense> dense_;  // of layers that are not of a dense kind
  std::vector<std::pair<std::int64_t, Dense>> of_dense_kinds_;  // by width
  // With post norms: what attention and feed-forward made, and the gradient of either.
  BufferId attention_branch_ = -1, ffn_branch_ = -1, branch_gradient_ = -1;
};

}  // namespace fpdt
