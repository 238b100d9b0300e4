// Emits rows, forward.
#include "fpdt/plan/lowering/rows.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpdt {

Rows::Rows(Context& context, Transition& transition)
    : LoweringPart(context), products_(context), transition_(transition) {
  const std::int64_t extent = shape_.extent_rows(0);
  const std::int64_t chunk = shape_.local_rows(0);
  const std::int64_t tile = ffn_tile();
  normed_ = rows_of_width("normed", extent, model_.hidden, storage_);
  qkv_ = rows_of_width("qkv", chunk, model_.qkv_width(), storage_);
  residual_ = rows_of_width("residual_chunk", extent, model_.hidden, storage_);
  up_ = rows_of_width("up", tile, model_.up_width(), storage_);
  act_ = rows_of_width("act", tile, model_.feed_forward, storage_);
  norm_gradient_ = rows_of_width("norm_gradient", extent, model_.hidden, storage_);
  qkv_gradient_ = rows_of_width("qkv_gradient", chunk, model_.qkv_width(), storage_);
  act_gradient_ = rows_of_width("act_gradient", tile, model_.feed_forward, storage_);
  up_gradient_ = rows_of_width("up_gradient", tile, model_.up_width(), storage_);
}

ActivationKind Rows::activation_kind() const {
  switch (model_.activation) {
    case ActivationFamily::swiglu:
      return ActivationKind::swiglu;
    case ActivationFamily::gelu_tanh:
      return ActivationKind::gelu_tanh;
    case ActivationFamily::gelu_erf:
      return ActivationKind::gelu_erf;
  }
  return {};
}

std::int64_t Rows::ffn_tile() const {
  const std::int64_t most = shape_.local_rows(0);
  return strategy_.tiles.ffn_rows > 0 ? std::min(strategy_.tiles.ffn_rows, most) : most;
}

void Rows::project(LayerFrame& frame, std::int64_t chunk) {
  if (enters(chunk, Loop::up)) first_norm(frame, shape_.extent_of(chunk));
  const std::int64_t rows = shape_.local_rows(chunk);
  const Operand qkv = temporary(qkv_, rows);
  const Operand& n1 = frame.n1[index(shape_.extent_of(chunk))];
  products_.linear(fmt::format("qkv.{}", chunk), "qkv", frame.weights, chunk_of(n1, chunk), qkv,
                   rows, model_.hidden, model_.qkv_width());
  transition_.to_heads(frame, chunk, qkv);
}

void Rows::first_norm(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.extent_rows(extent);
  const bool all = frame.stores(Recompute::keep_all);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
  const Operand n1 =
      all ? homes.norm_output.produce(builder_, inputs(frame), extent) : temporary(normed_, rows);
  products_.norm(fmt::format("norm1.{}", extent), "norm1", frame.weights, x, n1, rows);
  if (all) homes.norm_output.spill(builder_, inputs(frame), extent, n1, out_lane());
  frame.x[index(extent)] = x;
  frame.n1[index(extent)] = n1;
}

void Rows::feed_forward(LayerFrame& frame, std::int64_t extent) {
  Homes& homes = *frame.homes;
  const std::size_t at = index(extent);
  const std::int64_t rows = shape_.extent_rows(extent);
  const std::int64_t hidden = model_.hidden;
  const bool all = frame.stores(Recompute::keep_all);
  const bool parallel = model_.parallel_residual;
  const Instance stored = stored_instance(homes);
  const bool keep = all && !parallel;
  Operand& x = frame.x[at];  // of the projection, unless that was many rows ago
  if (shape_.hops > 1) {
    x = frame.input.home->fetch(builder_, frame.input.instance, extent, reuse(), LaneKind::h2d);
  }
  const Operand h =
      keep ? homes.residual.produce(builder_, stored, extent) : temporary(residual_, rows);
  products_.linear(fmt::format("out.{}", extent), "out", frame.weights, frame.attention_output[at],
                   h, rows, model_.q_width(), hidden, x);
  if (keep) homes.residual.spill(builder_, stored, extent, h, out_lane());
  const Operand n2 = temporary(normed_, rows);
  products_.norm(fmt::format("norm2.{}", extent), "norm2", frame.weights, parallel ? x : h, n2,
                 rows);
  const Operand y = frame.output.home->produce(builder_, frame.output.instance, extent);
  const Operand up_all = all ? homes.ffn_hidden.produce(builder_, stored, extent) : Operand{};
  const std::int64_t tile = ffn_tile();
  const auto activation = activation_kind();
  for (std::int64_t first = 0; first < rows; first += tile) {
    const std::int64_t r = std::min(tile, rows - first);
    const Operand up = all ? rows_of(up_all, first, r) : temporary(up_, r);
    products_.linear(fmt::format("up.{}.{}", extent, first), "up", frame.weights,
                     rows_of(n2, first, r), up, r, hidden, model_.up_width());
    const Operand act = temporary(act_, r);
    builder_.emit(fmt::format("act.{}.{}", extent, first), LaneKind::compute,
                  Activation{up, {act, false}, activation, r, model_.feed_forward});
    products_.linear(fmt::format("down.{}.{}", extent, first), "down", frame.weights, act,
                     rows_of(y, first, r), r, model_.feed_forward, hidden, rows_of(h, first, r));
  }
  if (all) homes.ffn_hidden.spill(builder_, stored, extent, up_all, out_lane());
  frame.output.home->spill(builder_, frame.output.instance, extent, y, out_lane());
}

}  // namespace fpdt
