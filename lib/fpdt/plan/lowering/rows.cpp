// Emits the rows of a chunk, forward.
#include "fpdt/plan/lowering/rows.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpdt {

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
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.local_rows(chunk);
  const bool all = frame.stores(Recompute::keep_all);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
  frame.x[static_cast<std::size_t>(chunk)] = x;
  const Operand n1 =
      all ? homes.norm_output.produce(builder_, inputs(frame), chunk) : temporary("normed", rows);
  products_.norm(fmt::format("norm1.{}", chunk), "norm1", frame.weights, x, n1, rows);
  if (all) homes.norm_output.spill(builder_, inputs(frame), chunk, n1, out_lane());
  const Operand qkv = temporary("qkv", rows);
  products_.linear(fmt::format("qkv.{}", chunk), "qkv", frame.weights, n1, qkv, rows, model_.hidden,
                   model_.qkv_width());
  transition_.to_heads(frame, chunk, qkv);
}

void Rows::feed_forward(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const bool all = frame.stores(Recompute::keep_all);
  const bool parallel = model_.parallel_residual;
  const Instance stored = stored_instance(homes);
  const bool keep = all && !parallel;
  const Operand h =
      keep ? homes.residual.produce(builder_, stored, chunk) : temporary("residual_chunk", rows);
  products_.linear(fmt::format("out.{}", chunk), "out", frame.weights, frame.attention_output[c], h,
                   rows, model_.q_width(), hidden, frame.x[c]);
  if (keep) homes.residual.spill(builder_, stored, chunk, h, out_lane());
  const Operand n2 = temporary("normed", rows);
  products_.norm(fmt::format("norm2.{}", chunk), "norm2", frame.weights, parallel ? frame.x[c] : h,
                 n2, rows);
  const Operand y = frame.output.home->produce(builder_, frame.output.instance, chunk);
  const Operand up_all = all ? homes.ffn_hidden.produce(builder_, stored, chunk) : Operand{};
  const std::int64_t tile = ffn_tile();
  const auto activation = activation_kind();
  for (std::int64_t first = 0; first < rows; first += tile) {
    const std::int64_t r = std::min(tile, rows - first);
    const Operand up = all ? rows_of(up_all, first, r) : temporary("up", r);
    products_.linear(fmt::format("up.{}.{}", chunk, first), "up", frame.weights,
                     rows_of(n2, first, r), up, r, hidden, model_.up_width());
    const Operand act = temporary("act", r);
    builder_.emit(fmt::format("act.{}.{}", chunk, first), LaneKind::compute,
                  Activation{up, {act, false}, activation, r, model_.feed_forward});
    products_.linear(fmt::format("down.{}.{}", chunk, first), "down", frame.weights, act,
                     rows_of(y, first, r), r, model_.feed_forward, hidden, rows_of(h, first, r));
  }
  if (all) homes.ffn_hidden.spill(builder_, stored, chunk, up_all, out_lane());
  frame.output.home->spill(builder_, frame.output.instance, chunk, y, out_lane());
}

}  // namespace fpdt
