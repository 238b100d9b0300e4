// Emits the ops of experts.
#include "fpdt/plan/lowering/experts.h"

#include <fmt/format.h>

namespace fpdt {

static_assert(kModelExpertsMost <= kExpertsMost && kModelActiveMost <= kActiveMost);

Experts::Experts(Context& context, ActivationKind activation, std::int64_t tile)
    : LoweringPart(context), products_(context), activation_(activation) {
  const std::int64_t taken = pairs(tile);
  const std::int64_t experts = model_.experts, active = model_.active_experts;
  const std::int64_t width = model_.feed_forward;
  const auto of_pairs = [&](const char* name, std::int64_t columns) {
    return rows_of_width(name, taken, columns, storage_);
  };
  logits_ = rows_of_width("router_logits", tile, experts, Dtype::f32);
  routes_ = rows_of_width("routes", 2 * taken + experts, 1, Dtype::i32);
  weights_ = rows_of_width("expert_weights", tile, active, Dtype::f32);
  rows_ = of_pairs("expert_rows", model_.hidden);
  up_ = of_pairs("up", model_.up_width());
  act_ = of_pairs("act", width);
  made_ = of_pairs("expert_outputs", model_.hidden);
  if (model_.bias) bias_terms_ = rows_of_width("expert_bias_terms", tile, experts, Dtype::f32);
  weights_gradient_ = rows_of_width("expert_weights_gradient", tile, active, Dtype::f32);
  logits_gradient_ = rows_of_width("router_logits_gradient", tile, experts, storage_);
  router_gradient_ = rows_of_width("router_gradient", tile, model_.hidden, storage_);
  rows_gradient_ = of_pairs("expert_rows_gradient", model_.hidden);
  act_gradient_ = of_pairs("act_gradient", width);
  weighted_act_ = of_pairs("weighted_act", width);
  weighted_gradient_ = of_pairs("weighted_act_gradient", width);
  up_gradient_ = of_pairs("up_gradient", model_.up_width());
}

Experts::Taken Experts::take(const LayerFrame& frame, const std::string& prefix,
                             const std::string& place, const Operand& n2, std::int64_t rows) {
  Taken made;
  made.logits = temporary(logits_, rows);
  products_.linear(prefix + "router." + place, "router", frame.weights, n2, made.logits, rows,
                   model_.hidden, model_.experts);
  made.routes = temporary(routes_, 2 * pairs(rows) + model_.experts);
  made.weights = temporary(weights_, rows);
  Route route;
  route.logits = made.logits;
  route.routes = {made.routes, false};
  route.weights = {made.weights, false};
  route.rows = rows;
  route.experts = model_.experts;
  route.active = model_.active_experts;
  route.normalised = model_.normalised_experts;
  route.sigmoid = model_.sigmoid_router;
  route.scale = model_.expert_scale;
  if (route.sigmoid) {
    route.bias = states_.weight_rows("selection.bias", frame.weights, 0, model_.experts);
  }
  builder_.emit(prefix + "route." + place, LaneKind::compute, route);
  made.rows = temporary(rows_, pairs(rows));
  dispatch(prefix + "dispatch." + place, made, n2, made.rows, rows);
  made.up = temporary(up_, pairs(rows));
  product(prefix + "up." + place, frame, "up", made, made.rows, made.up, rows, model_.up_width(),
          model_.hidden, false);
  made.act = temporary(act_, pairs(rows));
  builder_.emit(
      prefix + "act." + place, LaneKind::compute,
      Activation{made.up, {made.act, false}, activation_, pairs(rows), model_.feed_forward});
  return made;
}

void Experts::forward(const LayerFrame& frame, const std::string& place, const Operand& n2,
                      const Operand& h, const Operand& y, std::int64_t rows, std::int64_t first) {
  const Taken taken = take(frame, "", place, n2, rows);
  if (states_.balances() && frame.visit == Visit::forward) {
    auto loads = of_routes<ExpertLoads>(taken.routes, rows);
    loads.logits = taken.logits;
    loads.labels = labels(first, rows);
    loads.loads = states_.loads();
    loads.chances = states_.chances();
    builder_.emit("loads." + place, LaneKind::compute, loads);
  }
  const Operand made = temporary(made_, pairs(rows));
  product("down." + place, frame, "down", taken, taken.act, made, rows, model_.hidden,
          model_.feed_forward, false);
  auto combine = of_routes<Combine>(taken.routes, rows);
  combine.x = made;
  combine.weights = taken.weights;
  combine.addend = h;
  combine.y = {y, false};
  combine.width = model_.hidden;
  builder_.emit("combine." + place, LaneKind::compute, combine);
}

void Experts::backward(const LayerFrame& frame, const std::string& place, const Operand& n2,
                       const Operand& dy, const Operand& addend, const Operand& dn2,
                       std::int64_t rows, std::int64_t first) {
  const std::int64_t hidden = model_.hidden, width = model_.feed_forward;
  const Taken taken = take(frame, "re", place, n2, rows);
  const Operand dmade = temporary(made_, pairs(rows));
  dispatch("dispatch_dy." + place, taken, dy, dmade, rows);
  const Operand dact = temporary(act_gradient_, pairs(rows));
  product("dact." + place, frame, "down", taken, dmade, dact, rows, hidden, width, true);

  const Operand weighted = temporary(weighted_act_, pairs(rows));
  const Operand dweighted = temporary(weighted_gradient_, pairs(rows));
  const Operand dweights = temporary(weights_gradient_, rows);
  auto combine = of_routes<CombineBackward>(taken.routes, rows);
  combine.x = taken.act;
  combine.dx = dact;
  combine.weights = taken.weights;
  combine.terms = bias_terms(frame, place, dy, rows);
  combine.weighted_x = {weighted, false};
  combine.weighted_dx = {dweighted, false};
  combine.dweights = {dweights, false};
  combine.width = width;
  builder_.emit("dcombine." + place, LaneKind::compute, combine);

  gradient("dw_down." + place, "down", taken, dmade, weighted, rows, hidden, width, first);
  bias_gradient("db_down." + place, "down", taken, dmade, taken.weights, rows, hidden, first);
  const Operand dup = temporary(up_gradient_, pairs(rows));
  builder_.emit(
      "dup." + place, LaneKind::compute,
      ActivationBackward{taken.up, dweighted, {dup, false}, activation_, pairs(rows), width});
  gradient("dw_up." + place, "up", taken, dup, taken.rows, rows, model_.up_width(), hidden, first);
  bias_gradient("db_up." + place, "up", taken, dup, {}, rows, model_.up_width(), first);
  const Operand drows = temporary(rows_gradient_, pairs(rows));
  product("drows." + place, frame, "up", taken, dup, drows, rows, model_.up_width(), hidden, true);

  auto route = of_routes<RouteBackward>(taken.routes, rows);
  route.logits = taken.logits;
  route.dweights = dweights;
  const Operand dlogits = temporary(logits_gradient_, rows);
  route.dlogits = {dlogits, false};
  route.normalised = model_.normalised_experts;
  route.sigmoid = model_.sigmoid_router;
  route.scale = model_.expert_scale;
  if (states_.balances()) {
    route.labels = labels(first, rows);
    route.loads = states_.sequence_loads();
    route.balance = states_.balance();
    route.z = states_.z();
  }
  builder_.emit("droute." + place, LaneKind::compute, route);
  products_.linear_gradient(place, "router", dlogits, n2, rows, hidden, model_.experts, first);
  const Operand drouter = temporary(router_gradient_, rows);
  products_.linear_backward("drouter." + place, "router", frame.weights, dlogits, drouter, rows,
                            hidden, model_.experts, addend);
  auto sum = of_routes<Combine>(taken.routes, rows);
  sum.x = drows;
  sum.addend = drouter;
  sum.y = {dn2, false};
  sum.width = hidden;
  builder_.emit("dn2." + place, LaneKind::compute, sum);
}

void Experts::product(const std::string& op, const LayerFrame& frame, const char* layer,
                      const Taken& taken, const Operand& a, const Operand& out, std::int64_t rows,
                      std::int64_t width, std::int64_t in, bool back) {
  auto product = of_routes<GroupedMatmul>(taken.routes, rows);
  product.a = a;
  if (!back) product.bias = optional_weight(std::string(layer) + ".bias", frame.weights);
  product.n = back ? in : width;
  product.k = back ? width : in;
  product.transpose_b = !back;
  const std::string weight = std::string(layer) + ".weight";
  for_each_slice(
      op, weight, [&](const std::string& place, const std::string& name, const ExpertSlice& slice) {
        product.b = slice.count > 0 ? states_.bring_slice(builder_, name, frame.weights, place)
                                    : states_.weight(name, frame.weights);
        product.slice = slice;
        product.out = {out, slice.first > 0};
        builder_.emit(place, LaneKind::compute, product);
      });
}

template <class Emit>
void Experts::for_each_slice(const std::string& op, const std::string& tensor, Emit emit) const {
  const std::int64_t slices = strategy_.tiles.expert_slices;
  if (slices == 1) return emit(op, tensor, ExpertSlice{});
  const std::int64_t each = div_exact(model_.experts, slices);
  for (std::int64_t i = 0; i < slices; ++i) {
    emit(fmt::format("{}.{}", op, i), slice_name(tensor, i), ExpertSlice{i * each, each});
  }
}

void Experts::gradient(const std::string& op, const char* layer, const Taken& taken,
                       const Operand& dy, const Operand& x, std::int64_t rows, std::int64_t width,
                       std::int64_t in, std::int64_t first) {
  auto sum = of_routes<GroupedGradient>(taken.routes, rows);
  sum.dy = dy;
  sum.x = x;
  sum.n = width;
  sum.k = in;
  sum.local_first = first;
  for_each_slice(op, std::string(layer) + ".weight",
                 [&](const std::string& place, const std::string& name, const ExpertSlice& slice) {
                   const bool sliced = slice.count > 0;
                   const std::int64_t elements = slice.of(model_.experts) * width * in;
                   sum.slice = slice;
                   sum.sum = sliced ? states_.begin_slice_gradient(builder_, name, "zero_" + place)
                                    : states_.gradient_rows(name, Version::plus(0), 0, elements);
                   builder_.emit(place, LaneKind::compute, sum);
                   if (!sliced) return;
                   states_.reduce_slice_gradient(builder_, name, sum.sum, "reduce_" + place);
                 });
}

Operand Experts::bias_terms(const LayerFrame& frame, const std::string& place, const Operand& dy,
                            std::int64_t rows) {
  if (!model_.bias) return {};
  const Operand terms = temporary(bias_terms_, rows);
  Matmul product{dy, states_.weight("down.bias", frame.weights), {}, {}, {terms, false}};
  product.m = rows;
  product.n = model_.experts;
  product.k = model_.hidden;
  product.transpose_b = true;
  builder_.emit("bias_terms." + place, LaneKind::compute, product);
  return terms;
}

void Experts::bias_gradient(const std::string& op, const char* layer, const Taken& taken,
                            const Operand& dy, const Operand& weights, std::int64_t rows,
                            std::int64_t width, std::int64_t first) {
  if (!model_.bias) return;
  auto sum = of_routes<GroupedSum>(taken.routes, rows);
  sum.source = dy;
  sum.weights = weights;
  sum.sum = states_.gradient_rows(std::string(layer) + ".bias", Version::plus(0), 0,
                                  model_.experts * width);
  sum.width = width;
  sum.local_first = first;
  builder_.emit(op, LaneKind::compute, sum);
}

void Experts::dispatch(const std::string& op, const Taken& taken, const Operand& x,
                       const Operand& y, std::int64_t rows) {
  auto sent = of_routes<Dispatch>(taken.routes, rows);
  sent.x = x;
  sent.y = {y, false};
  sent.width = model_.hidden;
  builder_.emit(op, LaneKind::compute, sent);
}

}  // namespace fpdt
