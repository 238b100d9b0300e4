// Emits the rows of a chunk, backward.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/plan/lowering/rows.h"

namespace fpdt {

void Rows::feed_forward_backward(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const Operand dy = context_.layer_gradient.fetch(builder_, Version::plus(0), chunk,
                                                   Home::Reuse::latest, LaneKind::h2d);
  const Operand context = homes.attention_output.fetch(builder_, outputs(frame), chunk,
                                                       Home::Reuse::ring, LaneKind::h2d);
  const bool parallel = model_.parallel_residual;
  Operand h;  // the input of the second norm
  if (frame.stores(Recompute::keep_all) && !parallel) {
    h = homes.residual.fetch(builder_, stored_instance(homes), chunk, Home::Reuse::ring,
                             LaneKind::h2d);
  } else {
    const Operand x =
        frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
    h = parallel ? x : temporary("residual_chunk", rows);
    if (!parallel) {
      products_.linear(fmt::format("out.{}", chunk), "out", frame.weights, context, h, rows,
                       model_.q_width(), hidden, x);
    }
  }
  tiles_backward(frame, chunk, h, dy);

  // Gradients of attention's output projection.
  const Operand dh = parallel ? dy : frame.dh[c];
  const std::int64_t width = model_.q_width();
  const std::int64_t first = local_first(chunk);
  products_.linear_gradient(fmt::format("{}", chunk), "out", dh, context, rows, width, hidden,
                            first);
  const Transition::OutputGradient made = transition_.output_gradient(frame, chunk);
  products_.linear_backward(fmt::format("dcontext.{}", chunk), "out", frame.weights, dh,
                            made.dcontext, rows, width, hidden);
  builder_.emit(
      fmt::format("delta.{}", chunk), LaneKind::compute,
      AttentionDelta{
          context, made.dcontext, {made.delta, false}, rows, model_.heads, model_.head_dim});
  transition_.output_gradient_to_heads(frame, chunk, made);
}

// Feed-forward and second norm, one row tile after another.
void Rows::tiles_backward(LayerFrame& frame, std::int64_t chunk, const Operand& h,
                          const Operand& dy) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const std::int64_t wide = model_.up_width();
  const std::int64_t ffn = model_.feed_forward;
  const bool all = frame.stores(Recompute::keep_all);
  const Operand n2 = temporary("normed", rows);
  products_.norm(fmt::format("renorm2.{}", chunk), "norm2", frame.weights, h, n2, rows);
  const Operand dn2 = temporary("norm_gradient", rows);
  const Operand kept_up = all ? homes.ffn_hidden.fetch(builder_, stored_instance(homes), chunk,
                                                       Home::Reuse::ring, LaneKind::h2d)
                              : Operand{};
  const std::int64_t tile = ffn_tile();
  const auto kind = activation_kind();
  for (std::int64_t at = 0; at < rows; at += tile) {
    const std::int64_t r = std::min(tile, rows - at);
    const std::int64_t first = local_first(chunk) + at;
    const std::string place = fmt::format("{}.{}", chunk, at);
    const Operand up = all ? rows_of(kept_up, at, r) : temporary("up", r);
    const Operand n2_rows = rows_of(n2, at, r);
    const Operand dy_rows = rows_of(dy, at, r);
    if (!all) products_.linear("reup." + place, "up", frame.weights, n2_rows, up, r, hidden, wide);
    const Operand act = temporary("act", r);
    builder_.emit("react." + place, LaneKind::compute, Activation{up, {act, false}, kind, r, ffn});
    products_.linear_gradient(place, "down", dy_rows, act, r, ffn, hidden, first);
    const Operand dact = temporary("act_gradient", r);
    products_.linear_backward("dact." + place, "down", frame.weights, dy_rows, dact, r, ffn,
                              hidden);
    const Operand dup = temporary("up_gradient", r);
    builder_.emit("dup." + place, LaneKind::compute,
                  ActivationBackward{up, dact, {dup, false}, kind, r, ffn});
    products_.linear_gradient(place, "up", dup, n2_rows, r, hidden, wide, first);
    products_.linear_backward("dn2." + place, "up", frame.weights, dup, rows_of(dn2, at, r), r,
                              hidden, wide);
  }
  const Operand dh = homes.residual_gradient.produce(builder_, Version::plus(0), chunk);
  products_.norm_backward(fmt::format("dh.{}", chunk), {.layer = "norm2",
                                                        .use = frame.weights,
                                                        .sum = Version::plus(0),
                                                        .x = h,
                                                        .dy = dn2,
                                                        .addend = dy,
                                                        .dx = dh,
                                                        .rows = rows,
                                                        .local_first = local_first(chunk)});
  homes.residual_gradient.spill(builder_, Version::plus(0), chunk, dh, out_lane());
  frame.dh[static_cast<std::size_t>(chunk)] = dh;
}

void Rows::projection_backward(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const std::int64_t width = model_.qkv_width();
  const std::int64_t first = local_first(chunk);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
  Operand n1;
  if (frame.stores(Recompute::keep_all)) {
    n1 = homes.norm_output.fetch(builder_, stored_instance(homes), chunk, Home::Reuse::ring,
                                 LaneKind::h2d);
  } else {
    n1 = temporary("normed", rows);
    products_.norm(fmt::format("renorm1.{}", chunk), "norm1", frame.weights, x, n1, rows);
  }
  Operand qkv;
  if (model_.qk_norm) {
    qkv = temporary("qkv", rows);
    products_.linear(fmt::format("reqkv.{}", chunk), "qkv", frame.weights, n1, qkv, rows, hidden,
                     width);
  }
  const Operand dqkv = transition_.join_gradients(frame, chunk, qkv);
  products_.linear_gradient(fmt::format("{}", chunk), "qkv", dqkv, n1, rows, hidden, width, first);
  const Operand dn1 = temporary("norm_gradient", rows);
  products_.linear_backward(fmt::format("dn1.{}", chunk), "qkv", frame.weights, dqkv, dn1, rows,
                            hidden, width);
  const Operand dh = homes.residual_gradient.fetch(builder_, Version::plus(0), chunk,
                                                   Home::Reuse::ring, LaneKind::h2d);
  const Operand dx = context_.layer_gradient.produce(builder_, Version::plus(1), chunk);
  products_.norm_backward(fmt::format("dx.{}", chunk), {.layer = "norm1",
                                                        .use = frame.weights,
                                                        .sum = Version::plus(0),
                                                        .x = x,
                                                        .dy = dn1,
                                                        .addend = dh,
                                                        .dx = dx,
                                                        .rows = rows,
                                                        .local_first = first});
  context_.layer_gradient.spill(builder_, Version::plus(1), chunk, dx, out_lane());
}

}  // namespace fpdt
