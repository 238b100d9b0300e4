// Experts in place of a feed-forward. The weights of all of them are gathered, as any parameter is,
// and each rank computes its own rows: no row travels. So bytes do not depend on the router. k rows
// of a tile for each of its rows, whatever experts they take.
//
// Each tile of rows is routed by itself, and backward routes it again, from the same logits. In
// slices of experts (ADR 0037), a tile meets one slice after another: rows go to the experts of a
// slice and through its products, and what comes back is added up.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "fpdt/plan/lowering/context.h"
#include "fpdt/plan/lowering/products.h"

namespace fpdt {

class Experts : public LoweringPart {
 public:
  // `tile`: the most rows at a time; `tiles`: those of an extent that are open at a time.
  Experts(Context& context, ActivationKind activation, std::int64_t tile, std::int64_t tiles);

  // Rows of the rank's tokens from `first` on. Forward: y = experts(n2) + addend. Backward: y = dn2
  // from dy, + addend if present, and the gradients of weights.
  struct Tile {
    std::string place;
    Operand n2, dy, addend, y;
    std::int64_t rows = 0, first = 0;
  };
  // The i-th of an extent's tiles, after what is dense beside the experts.
  using Tiles = std::function<Tile(std::int64_t)>;
  void forward(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
               const Tiles& tiles);
  void backward(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
                const Tiles& tiles);

 private:
  // A tile, and what it has while slices pass. made: of pairs, by the last one; sum: f32, of what
  // all of them made of the rows.
  struct Routed : Tile {
    Routed() = default;
    explicit Routed(Tile of) : Tile(std::move(of)) {}
    Operand logits, routes, weights, terms, dweights, made, sum;
  };
  // All experts, or a slice of them, and the sums of their gradients.
  struct Slice {
    std::int64_t number = 0;
    ExpertSlice experts;
    Operand up, down;
    Target dup, ddown;
    bool begins = true, ends = true;  // its sums, with this tile
  };
  using Work = std::function<void(Routed&, Slice&)>;
  // Calls work(tile, slice) for each tile and slice, with tiles or slices outside; begin(i) before
  // the first slice of a tile, and end(tile) after the last.
  void visit(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
             const std::function<Routed(std::int64_t)>& begin, const Work& work,
             const std::function<void(const Routed&)>& end);
  [[nodiscard]] Slice bring(const LayerFrame& frame, std::int64_t extent, std::int64_t run) const;
  Routed route(const LayerFrame& frame, const std::string& prefix, const Tile& tile);
  // The rows of a tile that go to a slice, and their way to the activation.
  struct Taken {
    Operand rows, up, act;
  };
  Taken take(const LayerFrame& frame, const std::string& prefix, const std::string& place,
             const Routed& tile, const Slice& slice);
  void forward(const LayerFrame& frame, Routed& tile, const Slice& slice);
  void backward(const LayerFrame& frame, Routed& tile, Slice& slice);
  void route_backward(const LayerFrame& frame, const Routed& tile);

  // Of the matrices of "<layer>.weight", [out, in] each; `back`: from out to in.
  Operand product(const std::string& op, const LayerFrame& frame, const char* layer,
                  const Routed& tile, const Slice& slice, const Operand& a, BufferId out,
                  std::int64_t width, std::int64_t in, bool back);
  void gradient(const std::string& op, const char* layer, const Routed& tile, const Slice& slice,
                Target& sum, const Operand& dy, const Operand& x, std::int64_t width,
                std::int64_t in);
  // What the biases of "down" add to the gradients of weights: dy times each, [rows, X].
  Operand bias_terms(const LayerFrame& frame, const Tile& tile);
  // Of "<layer>.bias", [X, width], from gradients of pairs, times their weights if there are any.
  void bias_gradient(const std::string& op, const char* layer, const Routed& tile,
                     const Slice& slice, const Operand& dy, const Operand& weights,
                     std::int64_t width);
  [[nodiscard]] Operand labels(const Tile& tile) const {
    return {context_.labels, kMicroBatch, tile.first, tile.rows};
  }
  Operand dispatch(const std::string& op, const Routed& tile, const Slice& slice, const Operand& x,
                   BufferId y);
  // Adds what a slice made to the sums of rows, where there are slices.
  void add_up(const std::string& op, const Routed& tile, const Slice& slice,
              const Operand& weights);
  // tile.y = the sum over the choices of each row + addend.
  void deliver(const std::string& op, const Routed& tile, const Operand& weights,
               const Operand& addend);
  template <class Op>
  Op of_routes(const Routed& tile) const {
    Op op;
    op.routes = tile.routes;
    op.rows = tile.rows;
    op.experts = model_.experts;
    op.active = model_.active_experts;
    return op;
  }
  template <class Op>
  Op of_slice(const Routed& tile, const Slice& slice) const {
    Op op = of_routes<Op>(tile);
    op.slice = slice.experts;
    return op;
  }
  // An activation, or its gradient, of the pairs of a slice.
  template <class Op>
  Op activation(const Routed& tile, const Slice& slice) const;
  [[nodiscard]] std::int64_t pairs(std::int64_t rows) const { return rows * model_.active_experts; }
  [[nodiscard]] std::int64_t slices() const { return strategy_.tiles.expert_slices; }
  [[nodiscard]] bool sliced() const { return slices() > 1; }
  [[nodiscard]] bool slices_outside() const { return strategy_.tiles.slices_outside(); }
  // Its part of a place, in names of ops.
  [[nodiscard]] std::string name(const std::string& place, const Slice& slice) const;

  Products products_;
  ActivationKind activation_;
  BufferId logits_, routes_, weights_, rows_, up_, act_, made_;
  BufferId weights_gradient_, logits_gradient_, router_gradient_, rows_gradient_;
  BufferId bias_terms_ = -1, sum_ = -1;
  BufferId act_gradient_, up_gradient_;
};

}  // namespace fpdt
