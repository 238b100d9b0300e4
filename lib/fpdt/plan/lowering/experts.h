// Experts in place of a feed-forward. The weights of all of them are gathered, as any parameter is,
// and each rank computes its own rows: no row travels. So bytes do not depend on the router. k rows
// of a tile for each of its rows, whatever experts they take.
//
// Each tile of rows is routed by itself, and backward routes it again, from the same logits.
#pragma once

#include <string>

#include "fpdt/plan/lowering/context.h"
#include "fpdt/plan/lowering/products.h"

namespace fpdt {

class Experts : public LoweringPart {
 public:
  // `tile`: the most rows at a time.
  Experts(Context& context, ActivationKind activation, std::int64_t tile);

  // y = experts(n2) + h, of so many rows, the rank's tokens from `first`. h holds the residual, and
  // what is dense beside the experts.
  void forward(const LayerFrame& frame, const std::string& place, const Operand& n2,
               const Operand& h, const Operand& y, std::int64_t rows, std::int64_t first);
  // dn2 from dy, + addend if present, and the gradients of weights, of the rank's tokens from
  // `first`.
  void backward(const LayerFrame& frame, const std::string& place, const Operand& n2,
                const Operand& dy, const Operand& addend, const Operand& dn2, std::int64_t rows,
                std::int64_t first);

 private:
  // What rows have taken, and their way to the activation.
  struct Taken {
    Operand logits, routes, weights, rows, up, act;
  };
  Taken take(const LayerFrame& frame, const std::string& prefix, const std::string& place,
             const Operand& n2, std::int64_t rows);
  // Of the matrices of "<layer>.weight", [out, in] each; `back`: from out to in.
  void product(const std::string& op, const LayerFrame& frame, const char* layer,
               const Taken& taken, const Operand& a, const Operand& out, std::int64_t rows,
               std::int64_t width, std::int64_t in, bool back);
  void gradient(const std::string& op, const char* layer, const Taken& taken, const Operand& dy,
                const Operand& x, std::int64_t rows, std::int64_t width, std::int64_t in,
                std::int64_t first);
  // Calls emit(op, tensor, slice) for each slice of the experts, with their names, or for all.
  template <class Emit>
  void for_each_slice(const std::string& op, const std::string& tensor, Emit emit) const;
  // What the biases of "down" add to the gradients of weights: dy times each, [rows, X].
  Operand bias_terms(const LayerFrame& frame, const std::string& place, const Operand& dy,
                     std::int64_t rows);
  // Of "<layer>.bias", [X, width], from gradients of pairs, times their weights if there are any.
  void bias_gradient(const std::string& op, const char* layer, const Taken& taken,
                     const Operand& dy, const Operand& weights, std::int64_t rows,
                     std::int64_t width, std::int64_t first);
  [[nodiscard]] Operand labels(std::int64_t first, std::int64_t rows) const {
    return {context_.labels, kMicroBatch, first, rows};
  }
  void dispatch(const std::string& op, const Taken& taken, const Operand& x, const Operand& y,
                std::int64_t rows);
  template <class Op>
  Op of_routes(const Operand& routes, std::int64_t rows) const {
    Op op;
    op.routes = routes;
    op.rows = rows;
    op.experts = model_.experts;
    op.active = model_.active_experts;
    return op;
  }
  [[nodiscard]] std::int64_t pairs(std::int64_t rows) const { return rows * model_.active_experts; }

  Products products_;
  ActivationKind activation_;
  BufferId logits_, routes_, weights_, rows_, up_, act_, made_;
  BufferId weights_gradient_, logits_gradient_, router_gradient_, rows_gradient_;
  BufferId bias_terms_ = -1;
  BufferId act_gradient_, weighted_act_, weighted_gradient_, up_gradient_;
};

}  // namespace fpdt
