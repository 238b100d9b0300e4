// Emits the ops of experts.
#include "fpdt/plan/lowering/experts.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace fpdt {

static_assert(kModelExpertsMost <= kExpertsMost && kModelActiveMost <= kActiveMost);

Experts::Experts(Context& context, ActivationKind activation, std::int64_t tile, std::int64_t tiles)
    : LoweringPart(context), products_(context), activation_(activation) {
  const std::int64_t taken = pairs(tile);
  const std::int64_t experts = model_.experts, active = model_.active_experts;
  const std::int64_t width = model_.feed_forward;
  const auto of_pairs = [&](const char* name, std::int64_t columns) {
    return rows_of_width(name, taken, columns, storage_);
  };
  const auto of_tiles = [&](const char* name, std::int64_t rows, std::int64_t columns,
                            Dtype dtype = Dtype::f32) {
    return rows_of_width(name, rows, columns, dtype, tiles);
  };
  logits_ = of_tiles("router_logits", tile, experts);
  routes_ = of_tiles("routes", 2 * taken + experts, 1, Dtype::i32);
  weights_ = of_tiles("expert_weights", tile, active);
  rows_ = of_pairs("expert_rows", model_.hidden);
  up_ = of_pairs("up", model_.up_width());
  act_ = of_pairs("act", width);
  made_ = of_pairs("expert_outputs", model_.hidden);
  if (sliced()) sum_ = of_tiles("expert_sum", tile, model_.hidden);
  if (model_.bias) bias_terms_ = of_tiles("expert_bias_terms", tile, experts);
  weights_gradient_ = of_tiles("expert_weights_gradient", tile, active);
  logits_gradient_ = rows_of_width("router_logits_gradient", tile, experts, storage_);
  router_gradient_ = rows_of_width("router_gradient", tile, model_.hidden, storage_);
  rows_gradient_ = of_pairs("expert_rows_gradient", model_.hidden);
  act_gradient_ = of_pairs("act_gradient", width);
  up_gradient_ = of_pairs("up_gradient", model_.up_width());
}

std::string Experts::name(const std::string& place, const Slice& slice) const {
  return sliced() ? builder_.name("{}.{}", place, slice.number) : place;
}

Experts::Slice Experts::bring(const LayerFrame& frame, std::int64_t extent,
                              std::int64_t run) const {
  Slice slice;
  if (!sliced()) {
    slice.up = states_.weight("up.weight", frame.weights);
    slice.down = states_.weight("down.weight", frame.weights);
    return slice;
  }
  const std::int64_t each = div_exact(model_.experts, slices());
  slice.number = run % slices();
  slice.experts = {slice.number * each, each};
  const auto matrices = [&](const char* layer) {
    return states_.bring_slice(builder_, slice_name(fmt::format("{}.weight", layer), slice.number),
                               frame.weights, builder_.name("{}.{}.{}", layer, extent, run));
  };
  slice.up = matrices("up");
  slice.down = matrices("down");
  return slice;
}

// A run is a slice with a tile, or with all tiles. Slices are gathered one ahead, before sums of
// gradients take the links.
void Experts::visit(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
                    const std::function<Routed(std::int64_t)>& begin, const Work& work,
                    const std::function<void(const Routed&)>& end) {
  const std::int64_t runs = slices_outside() ? slices() : count * slices();
  std::vector<Routed> tiles(index(count));
  Slice next = bring(frame, extent, 0);
  for (std::int64_t run = 0; run < runs; ++run) {
    Slice slice = std::exchange(next, {});
    if (run + 1 < runs) next = bring(frame, extent, run + 1);
    const std::int64_t first = slices_outside() ? 0 : run / slices();
    const std::int64_t last = slices_outside() ? count - 1 : first;
    for (std::int64_t i = first; i <= last; ++i) {
      Routed& tile = tiles[index(i)];
      if (slice.number == 0) tile = begin(i);
      slice.begins = i == first;
      slice.ends = i == last;
      work(tile, slice);
      if (slice.number + 1 == slices()) end(tile);
    }
  }
}

Experts::Routed Experts::route(const LayerFrame& frame, const std::string& prefix,
                               const Tile& tile) {
  Routed made(tile);
  made.logits = temporary(logits_, tile.rows);
  products_.linear(prefix + "router." + tile.place, "router", frame.weights, tile.n2, made.logits,
                   tile.rows, model_.hidden, model_.experts);
  made.routes = temporary(routes_, 2 * pairs(tile.rows) + model_.experts);
  made.weights = temporary(weights_, tile.rows);
  Route route;
  route.logits = made.logits;
  route.routes = {made.routes, false};
  route.weights = {made.weights, false};
  route.rows = tile.rows;
  route.experts = model_.experts;
  route.active = model_.active_experts;
  route.normalised = model_.normalised_experts;
  route.sigmoid = model_.sigmoid_router;
  route.scale = model_.expert_scale;
  if (route.sigmoid) {
    route.bias = states_.weight_rows("selection.bias", frame.weights, 0, model_.experts);
  }
  builder_.emit(prefix + "route." + tile.place, LaneKind::compute, route);
  if (sliced()) made.sum = temporary(sum_, tile.rows);
  return made;
}

Experts::Taken Experts::take(const LayerFrame& frame, const std::string& prefix,
                             const std::string& place, const Routed& tile, const Slice& slice) {
  Taken made;
  made.rows = dispatch(prefix + "dispatch." + place, tile, slice, tile.n2, rows_);
  made.up = product(prefix + "up." + place, frame, "up", tile, slice, made.rows, up_,
                    model_.up_width(), model_.hidden, false);
  made.act = temporary(act_, pairs(tile.rows));
  auto act = activation<Activation>(tile, slice);
  act.x = made.up;
  act.y = {made.act, false};
  builder_.emit(prefix + "act." + place, LaneKind::compute, act);
  return made;
}

void Experts::forward(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
                      const Tiles& tiles) {
  const auto begin = [&](std::int64_t i) {
    Routed tile = route(frame, "", tiles(i));
    if (!states_.balances() || frame.visit != Visit::forward) return tile;
    auto loads = of_routes<ExpertLoads>(tile);
    loads.logits = tile.logits;
    loads.labels = labels(tile);
    loads.loads = states_.loads();
    loads.chances = states_.chances();
    builder_.emit("loads." + tile.place, LaneKind::compute, loads);
    return tile;
  };
  visit(
      frame, extent, count, begin,
      [&](Routed& tile, const Slice& slice) { forward(frame, tile, slice); },
      [&](const Routed& tile) {
        deliver("combine." + tile.place, tile, tile.weights, tile.addend);
      });
}

void Experts::forward(const LayerFrame& frame, Routed& tile, const Slice& slice) {
  const std::string place = name(tile.place, slice);
  const Taken taken = take(frame, "", place, tile, slice);
  tile.made = product("down." + place, frame, "down", tile, slice, taken.act, made_, model_.hidden,
                      model_.feed_forward, false);
  add_up("combine." + place, tile, slice, tile.weights);
}

void Experts::backward(const LayerFrame& frame, std::int64_t extent, std::int64_t count,
                       const Tiles& tiles) {
  const auto begin = [&](std::int64_t i) {
    Routed tile = route(frame, "re", tiles(i));
    tile.dweights = temporary(weights_gradient_, tile.rows);
    tile.terms = bias_terms(frame, tile);
    return tile;
  };
  visit(
      frame, extent, count, begin,
      [&](Routed& tile, Slice& slice) { backward(frame, tile, slice); },
      [&](const Routed& tile) { route_backward(frame, tile); });
}

void Experts::backward(const LayerFrame& frame, Routed& tile, Slice& slice) {
  const std::int64_t hidden = model_.hidden, width = model_.feed_forward;
  const std::string place = name(tile.place, slice);
  const Taken taken = take(frame, "re", place, tile, slice);
  const Operand dmade = dispatch("dispatch_dy." + place, tile, slice, tile.dy, made_);
  const Operand dact = product("dact." + place, frame, "down", tile, slice, dmade, act_gradient_,
                               hidden, width, true);
  auto combine_back = of_slice<CombineBackward>(tile, slice);
  combine_back.x = {taken.act, true};
  combine_back.dx = {dact, true};
  combine_back.weights = tile.weights;
  combine_back.terms = tile.terms;
  combine_back.dweights = {tile.dweights, slice.number > 0};
  combine_back.width = width;
  builder_.emit("dcombine." + place, LaneKind::compute, combine_back);

  gradient("dw_down." + place, "down", tile, slice, slice.ddown, dmade, taken.act, hidden, width);
  bias_gradient("db_down." + place, "down", tile, slice, dmade, tile.weights, hidden);
  const Operand dup = temporary(up_gradient_, pairs(tile.rows));
  auto slope = activation<ActivationBackward>(tile, slice);
  slope.x = taken.up;
  slope.dy = dact;
  slope.dx = {dup, false};
  builder_.emit("dup." + place, LaneKind::compute, slope);
  gradient("dw_up." + place, "up", tile, slice, slice.dup, dup, taken.rows, model_.up_width(),
           hidden);
  bias_gradient("db_up." + place, "up", tile, slice, dup, {}, model_.up_width());
  tile.made = product("drows." + place, frame, "up", tile, slice, dup, rows_gradient_,
                      model_.up_width(), hidden, true);
  add_up("dn2." + place, tile, slice, {});
}

void Experts::route_backward(const LayerFrame& frame, const Routed& tile) {
  auto route = of_routes<RouteBackward>(tile);
  route.logits = tile.logits;
  route.dweights = tile.dweights;
  const Operand dlogits = temporary(logits_gradient_, tile.rows);
  route.dlogits = {dlogits, false};
  route.normalised = model_.normalised_experts;
  route.sigmoid = model_.sigmoid_router;
  route.scale = model_.expert_scale;
  if (states_.balances()) {
    route.labels = labels(tile);
    route.loads = states_.sequence_loads();
    route.balance = states_.balance();
    route.z = states_.z();
  }
  builder_.emit("droute." + tile.place, LaneKind::compute, route);
  products_.linear_gradient(tile.place, "router", dlogits, tile.n2, tile.rows, model_.hidden,
                            model_.experts, tile.first);
  const Operand drouter = temporary(router_gradient_, tile.rows);
  products_.linear_backward("drouter." + tile.place, "router", frame.weights, dlogits, drouter,
                            tile.rows, model_.hidden, model_.experts, tile.addend);
  deliver("dn2." + tile.place, tile, {}, drouter);
}

Operand Experts::product(const std::string& op, const LayerFrame& frame, const char* layer,
                         const Routed& tile, const Slice& slice, const Operand& a, BufferId out,
                         std::int64_t width, std::int64_t in, bool back) {
  const Operand made = temporary(out, pairs(tile.rows));
  auto product = of_slice<GroupedMatmul>(tile, slice);
  product.a = a;
  product.b = std::string_view(layer) == "up" ? slice.up : slice.down;
  if (!back) product.bias = optional_weight(std::string(layer) + ".bias", frame.weights);
  product.out = {made, false};
  product.n = back ? in : width;
  product.k = back ? width : in;
  product.transpose_b = !back;
  builder_.emit(op, LaneKind::compute, product);
  return made;
}

void Experts::gradient(const std::string& op, const char* layer, const Routed& tile,
                       const Slice& slice, Target& sum, const Operand& dy, const Operand& x,
                       std::int64_t width, std::int64_t in) {
  const std::string weight = std::string(layer) + ".weight";
  const std::string part = sliced() ? slice_name(weight, slice.number) : weight;
  if (!sliced()) {
    sum = states_.gradient_rows(weight, Version::plus(0), 0, model_.experts * width * in);
  } else if (slice.begins) {
    sum = states_.begin_slice_gradient(builder_, part, "zero_" + op);
  }
  auto terms = of_slice<GroupedGradient>(tile, slice);
  terms.dy = dy;
  terms.x = x;
  terms.sum = sum;
  terms.n = width;
  terms.k = in;
  terms.local_first = tile.first;
  builder_.emit(op, LaneKind::compute, terms);
  sum.accumulate = true;
  if (sliced() && slice.ends) states_.reduce_slice_gradient(builder_, part, sum, "reduce_" + op);
}

Operand Experts::bias_terms(const LayerFrame& frame, const Tile& tile) {
  if (!model_.bias) return {};
  const Operand terms = temporary(bias_terms_, tile.rows);
  Matmul product{tile.dy, states_.weight("down.bias", frame.weights), {}, {}, {terms, false}};
  product.m = tile.rows;
  product.n = model_.experts;
  product.k = model_.hidden;
  product.transpose_b = true;
  builder_.emit("bias_terms." + tile.place, LaneKind::compute, product);
  return terms;
}

void Experts::bias_gradient(const std::string& op, const char* layer, const Routed& tile,
                            const Slice& slice, const Operand& dy, const Operand& weights,
                            std::int64_t width) {
  if (!model_.bias) return;
  auto sum = of_slice<GroupedSum>(tile, slice);
  sum.source = dy;
  sum.weights = weights;
  sum.sum =
      states_.gradient_rows(std::string(layer) + ".bias", Version::plus(0),
                            slice.experts.first * width, slice.experts.of(model_.experts) * width);
  sum.width = width;
  sum.local_first = tile.first;
  builder_.emit(op, LaneKind::compute, sum);
}

Operand Experts::dispatch(const std::string& op, const Routed& tile, const Slice& slice,
                          const Operand& x, BufferId y) {
  const Operand made = temporary(y, pairs(tile.rows));
  auto sent = of_slice<Dispatch>(tile, slice);
  sent.x = x;
  sent.y = {made, false};
  sent.width = model_.hidden;
  builder_.emit(op, LaneKind::compute, sent);
  return made;
}

void Experts::add_up(const std::string& op, const Routed& tile, const Slice& slice,
                     const Operand& weights) {
  if (!sliced()) return;
  auto sum = of_slice<Combine>(tile, slice);
  sum.x = tile.made;
  sum.weights = weights;
  sum.y = {tile.sum, slice.number > 0};
  sum.width = model_.hidden;
  builder_.emit(op, LaneKind::compute, sum);
}

void Experts::deliver(const std::string& op, const Routed& tile, const Operand& weights,
                      const Operand& addend) {
  if (sliced()) {
    builder_.emit(op, LaneKind::compute,
                  Add{tile.sum, addend, {}, {tile.y, false}, tile.rows, model_.hidden});
    return;
  }
  auto sum = of_routes<Combine>(tile);
  sum.x = tile.made;
  sum.weights = weights;
  sum.addend = addend;
  sum.y = {tile.y, false};
  sum.width = model_.hidden;
  builder_.emit(op, LaneKind::compute, sum);
}

template <class Op>
Op Experts::activation(const Routed& tile, const Slice& slice) const {
  Op op;
  if (sliced()) {
    op = of_slice<Op>(tile, slice);
  } else {
    op.rows = pairs(tile.rows);
  }
  op.kind = activation_;
  op.width = model_.feed_forward;
  return op;
}

}  // namespace fpdt
