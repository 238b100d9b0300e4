// Backward of a layer: repeat what was not kept, the feed-forward gradient chunk by chunk,
// attention tiles in either loop order, and the projections.
//
// kv_outer (rows are KV chunks, ascending): dkv_i and dq_i are complete after row i; dq streams
// through the host. q_outer (rows are query chunks, descending): dq_i and dkv_i are complete after
// row i; dkv streams. The gradient of the output is used in the row that makes it, so it is never
// stored.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/plan/lowering/lowering.h"

namespace fpdt {

void Lowering::backward_block(const std::string& name, Homes& homes, const Version& weights,
                              const Stream& input) {
  begin_block(name);
  Frame frame;
  frame.homes = &homes;
  frame.pass = Pass::recompute;
  frame.weights = weights;
  frame.input = input;
  const auto chunks = static_cast<std::size_t>(shape_.chunks);
  for (auto* list : {&frame.x, &frame.q, &frame.kv, &frame.o, &frame.attention_output, &frame.lse,
                     &frame.dout, &frame.delta, &frame.dh, &frame.dq, &frame.dkv}) {
    list->resize(chunks);
  }
  states_.emit_fill(builder_, states_.layer_names(), Version::plus(0));
  if (homes.choice.recompute == Recompute::from_input) {
    forward_rows(frame);
  } else if (homes.choice.recompute == Recompute::keep_attention) {
    for (std::int64_t i = 0; i < shape_.chunks; ++i) project(frame, i);
  }
  if (strategy_.tiles.backward_order == BackwardOrder::kv_outer) {
    kv_outer(frame);
  } else {
    q_outer(frame);
  }
  states_.emit_reduce(builder_, states_.layer_names(), Version::plus(0), "reduce_gradients");
  advance_repeated(homes);
  for (const Home* home : {&homes.residual_gradient, &homes.dout, &homes.delta}) {
    home->advance(builder_, 1);
  }
  // The streamed accumulator begins a new value in every row.
  homes.dq.advance(builder_, shape_.chunks);
  homes.dkv.advance(builder_, shape_.chunks);
  layer_gradient_.advance(builder_, 1);
  builder_.end_block();
}

// Computes dh_i from dy_i, and starts the gradient of the attention output on its way to head
// layout.
void Lowering::gradient(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Instance outputs =
      homes.choice.recompute == Recompute::from_input ? Version::plus(0) : stored_instance(homes);
  const Operand dy =
      layer_gradient_.fetch(builder_, Version::plus(0), chunk, Home::Reuse::latest, LaneKind::h2d);
  const Operand context =
      homes.attention_output.fetch(builder_, outputs, chunk, Home::Reuse::ring, LaneKind::h2d);
  const bool parallel = model_.parallel_residual;
  Operand h;  // the input of the second norm
  if (all && !parallel) {
    h = homes.residual.fetch(builder_, stored_instance(homes), chunk, Home::Reuse::ring,
                             LaneKind::h2d);
  } else {
    const Operand x =
        frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
    h = parallel ? x : temporary("residual_chunk", rows);
    if (!parallel) {
      linear(fmt::format("out.{}", chunk), "out", frame.weights, context, h, rows, model_.q_width(),
             hidden, x);
    }
  }
  ffn_gradient(frame, chunk, h, dy);

  // Gradients of attention's output projection.
  const Operand dh = parallel ? dy : frame.dh[c];
  const std::int64_t width = model_.q_width();
  const std::int64_t first = local_first(chunk);
  linear_gradient(fmt::format("{}", chunk), "out", dh, context, rows, width, hidden, first);
  const bool alone = ranks_ == 1;
  const Operand dcontext =
      alone ? homes.dout.produce(builder_, Version::plus(0), chunk) : temporary("dcontext", rows);
  linear_backward(fmt::format("dcontext.{}", chunk), "out", frame.weights, dh, dcontext, rows,
                  width, hidden);
  const Operand delta = alone ? homes.delta.produce(builder_, Version::plus(0), chunk)
                              : temporary("delta_chunk", rows);
  builder_.emit(
      fmt::format("delta.{}", chunk), LaneKind::compute,
      AttentionDelta{context, dcontext, {delta, false}, rows, model_.heads, model_.head_dim});
  send_output_gradient(frame, chunk, dcontext, delta);
}

// Feed-forward and second norm, one row tile after another.
void Lowering::ffn_gradient(Frame& frame, std::int64_t chunk, const Operand& h, const Operand& dy) {
  Homes& homes = *frame.homes;
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t most = shape_.local_rows(0);
  const std::int64_t hidden = model_.hidden;
  const std::int64_t wide = model_.up_width();
  const std::int64_t ffn = model_.feed_forward;
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Operand n2 = temporary("normed", rows);
  norm(fmt::format("renorm2.{}", chunk), "norm2", frame.weights, h, n2, rows);
  const Operand dn2 = temporary("norm_gradient", rows);
  const Operand kept_up = all ? homes.ffn_hidden.fetch(builder_, stored_instance(homes), chunk,
                                                       Home::Reuse::ring, LaneKind::h2d)
                              : Operand{};
  const std::int64_t tile =
      strategy_.tiles.ffn_rows > 0 ? std::min(strategy_.tiles.ffn_rows, most) : most;
  const auto kind = activation_kind();
  for (std::int64_t at = 0; at < rows; at += tile) {
    const std::int64_t r = std::min(tile, rows - at);
    const std::int64_t first = local_first(chunk) + at;
    const std::string place = fmt::format("{}.{}", chunk, at);
    const Operand up = all ? rows_of(kept_up, at, r) : temporary("up", r);
    const Operand n2_rows = rows_of(n2, at, r);
    const Operand dy_rows = rows_of(dy, at, r);
    if (!all) linear("reup." + place, "up", frame.weights, n2_rows, up, r, hidden, wide);
    const Operand act = temporary("act", r);
    builder_.emit("react." + place, LaneKind::compute, Activation{up, {act, false}, kind, r, ffn});
    linear_gradient(place, "down", dy_rows, act, r, ffn, hidden, first);
    const Operand dact = temporary("act_gradient", r);
    linear_backward("dact." + place, "down", frame.weights, dy_rows, dact, r, ffn, hidden);
    const Operand dup = temporary("up_gradient", r);
    builder_.emit("dup." + place, LaneKind::compute,
                  ActivationBackward{up, dact, {dup, false}, kind, r, ffn});
    linear_gradient(place, "up", dup, n2_rows, r, hidden, wide, first);
    linear_backward("dn2." + place, "up", frame.weights, dup, rows_of(dn2, at, r), r, hidden, wide);
  }
  const Operand dh = homes.residual_gradient.produce(builder_, Version::plus(0), chunk);
  norm_backward(fmt::format("dh.{}", chunk), {.layer = "norm2",
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

void Lowering::send_output_gradient(Frame& frame, std::int64_t chunk, const Operand& dcontext,
                                    const Operand& delta) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  frame.dout[c] = dcontext;
  frame.delta[c] = delta;
  if (ranks_ > 1) {
    const std::int64_t rows = shape_.local_rows(chunk);
    const std::int64_t width = shape_.heads * model_.head_dim;
    const auto sent = [&](const char* name, std::int64_t row, const Operand& source) {
      const Operand packed = temporary(name, shape_.rows(chunk));
      builder_.emit(fmt::format("{}.{}", name, chunk), LaneKind::compute,
                    Permute{source, {packed, false}, rows, ranks_, row});
      return packed;
    };
    const Operand dout_send = sent("dout_send", width, dcontext);
    const Operand delta_send = sent("delta_send", shape_.heads, delta);
    frame.dout[c] = homes.dout.produce(builder_, Version::plus(0), chunk);
    frame.delta[c] = homes.delta.produce(builder_, Version::plus(0), chunk);
    builder_.emit(
        fmt::format("a2a_dout.{}", chunk), LaneKind::comm,
        AllToAll{"sp", {dout_send, delta_send}, {{frame.dout[c], false}, {frame.delta[c], false}}});
  }
  homes.dout.spill(builder_, Version::plus(0), chunk, frame.dout[c], out_lane());
  homes.delta.spill(builder_, Version::plus(0), chunk, frame.delta[c], out_lane());
}

// Rows are KV chunks. With Reuse::latest, the query side of a row's last tile serves the first tile
// of the next row.
void Lowering::kv_outer(Frame& frame) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks;
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Instance kept = all ? stored_instance(homes) : Version::plus(0);
  for (std::int64_t i = 0; i < chunks; ++i) gradient(frame, i);
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto row = static_cast<std::size_t>(i);
    const Operand kv = homes.kv.fetch(builder_, kept, i, reuse(), LaneKind::h2d);
    const Operand dkv = temporary("dkv_sum", shape_.rows(i));
    bool first = true;
    for (std::int64_t step = i; step < chunks; ++step) {
      const std::int64_t j =
          strategy_.tiles.serpentine && i % 2 == 1 ? chunks - 1 - (step - i) : step;
      const bool diagonal = j == i;
      Operand dq;
      if (j >= homes.dq.first_kept()) {
        dq = homes.dq.fetch(builder_, Version::plus(0), j, Home::Reuse::none, LaneKind::h2d);
      } else if (diagonal) {
        dq = temporary("dq_diagonal", shape_.rows(j));
        if (i > 0) homes.dq.fetch_into(builder_, Version::plus(i - 1), j, dq, LaneKind::h2d);
      } else if (i == 0) {
        dq = homes.dq.produce(builder_, Version::plus(0), j);
      } else {
        dq = homes.dq.fetch(builder_, Version::plus(i - 1), j, Home::Reuse::none, LaneKind::h2d);
      }
      backward_tile(frame, j, i, i, kv, {dq, i > 0}, {dkv, !first});
      if (!diagonal) spill_after_fetches({&homes.dq, Version::plus(i), j, dq});
      if (diagonal) frame.dq[row] = dq;
      first = false;
    }
    emit_waiting_spill();  // the next row may begin with this chunk
    send_gradients(frame, i, frame.dq[row], dkv);
    if (overlap() == 0) close(frame, i);
    if (overlap() == 1 && i > 0) close(frame, i - 1);
  }
  if (overlap() == 1) close(frame, chunks - 1);
}

// Rows are query chunks, last first.
void Lowering::q_outer(Frame& frame) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks;
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Instance kept = all ? stored_instance(homes) : Version::plus(0);
  const std::int64_t resident =
      strategy_.tiles.long_tiles ? std::max(homes.kv.first_kept(), homes.dkv.first_kept()) : chunks;
  if (overlap() == 1) gradient(frame, chunks - 1);
  for (std::int64_t turn = 0; turn < chunks; ++turn) {
    const std::int64_t i = chunks - 1 - turn;
    const auto row = static_cast<std::size_t>(i);
    if (overlap() == 0) gradient(frame, i);
    if (overlap() == 1 && i > 0) gradient(frame, i - 1);
    const Operand dq = temporary("dq_sum", shape_.rows(i));
    bool first = true;
    for (std::int64_t step = 0; step <= i; ++step) {
      const std::int64_t j = strategy_.tiles.serpentine && turn % 2 == 1 ? i - step : step;
      if (j >= resident) {
        if (j != (strategy_.tiles.serpentine && turn % 2 == 1 ? i : resident)) continue;
        backward_tile(frame, i, resident, i, homes.kv.kept_span(kept, resident, i), {dq, !first},
                      {homes.dkv.kept_span(Version::plus(0), resident, i), turn > 0});
        frame.dkv[row] = homes.dkv.kept_span(Version::plus(0), i, i);
        first = false;
        continue;
      }
      const bool diagonal = j == i;
      const Operand kv = homes.kv.fetch(builder_, kept, j, reuse(), LaneKind::h2d);
      Operand dkv;
      if (j >= homes.dkv.first_kept()) {
        dkv = homes.dkv.fetch(builder_, Version::plus(0), j, Home::Reuse::none, LaneKind::h2d);
      } else if (diagonal) {
        dkv = temporary("dkv_diagonal", shape_.rows(j));
        if (turn > 0)
          homes.dkv.fetch_into(builder_, Version::plus(turn - 1), j, dkv, LaneKind::h2d);
      } else if (turn == 0) {
        dkv = homes.dkv.produce(builder_, Version::plus(0), j);
      } else {
        dkv =
            homes.dkv.fetch(builder_, Version::plus(turn - 1), j, Home::Reuse::none, LaneKind::h2d);
      }
      backward_tile(frame, i, j, j, kv, {dq, !first}, {dkv, turn > 0});
      if (!diagonal) spill_after_fetches({&homes.dkv, Version::plus(turn), j, dkv});
      if (diagonal) frame.dkv[row] = dkv;
      first = false;
    }
    emit_waiting_spill();
    send_gradients(frame, i, dq, frame.dkv[row]);
    if (overlap() == 0) close(frame, i);
    if (overlap() == 1 && turn > 0) close(frame, i + 1);
  }
  if (overlap() == 1) close(frame, 0);
}

// Copies of one lane run in the order of the file. A spill waits for its tile, so with one lane for
// both directions it would hold up the fetches of the next tile, and nothing would overlap. Without
// prefetch, those fetches need the slot that the spill empties.
void Lowering::spill_after_fetches(const WaitingSpill& spill) {
  waiting_spill_ = spill;
  if (strategy_.copies.duplex || strategy_.copies.prefetch_depth == 0) emit_waiting_spill();
}

void Lowering::emit_waiting_spill() {
  if (!waiting_spill_) return;
  const WaitingSpill& one = *waiting_spill_;
  one.home->spill(builder_, one.instance, one.chunk, one.value, out_lane());
  waiting_spill_.reset();
}

void Lowering::backward_tile(Frame& frame, std::int64_t q_chunk, std::int64_t k_first,
                             std::int64_t k_last, const Operand& kv, const Target& dq,
                             const Target& dkv) {
  Homes& homes = *frame.homes;
  const auto stored = [&](bool across) {
    return across ? stored_instance(homes) : Version::plus(0);
  };
  const Recompute recompute = homes.choice.recompute;
  // Both loop orders return to the query chunk that they used last.
  const Home::Reuse mode = reuse();
  AttentionBackward tile;
  tile.q = homes.q.fetch(builder_, stored(recompute == Recompute::keep_all), q_chunk, mode,
                         LaneKind::h2d);
  tile.kv = kv;
  tile.dout = homes.dout.fetch(builder_, Version::plus(0), q_chunk, mode, LaneKind::h2d);
  tile.lse = homes.lse.fetch(builder_, stored(recompute != Recompute::from_input), q_chunk, mode,
                             LaneKind::h2d);
  tile.delta = homes.delta.fetch(builder_, Version::plus(0), q_chunk, mode, LaneKind::h2d);
  tile.documents = documents();
  tile.dq = dq;
  tile.dkv = dkv;
  tile.q_first = q_chunk * shape_.chunk_rows;
  tile.q_rows = shape_.rows(q_chunk);
  tile.k_first = k_first * shape_.chunk_rows;
  tile.k_rows = k_last * shape_.chunk_rows + shape_.rows(k_last) - tile.k_first;
  tile.workspace = workspace();
  tile.heads = shape_.heads;
  tile.kv_heads = shape_.kv_heads;
  tile.head_dim = model_.head_dim;
  tile.scale = 1.0 / std::sqrt(static_cast<double>(model_.head_dim));
  tile.head_first = head_first();
  emit_waiting_spill();
  builder_.emit(fmt::format("dattn.{}.{}", q_chunk, k_first), LaneKind::compute, tile);
}

// Sends dq_i and dkv_i back to sequence layout.
void Lowering::send_gradients(Frame& frame, std::int64_t chunk, const Operand& dq,
                              const Operand& dkv) {
  const auto c = static_cast<std::size_t>(chunk);
  frame.dq[c] = dq;
  frame.dkv[c] = dkv;
  if (ranks_ == 1) return;
  Operand dq_send = dq;
  Operand dkv_send = dkv;
  if (storage_ != Dtype::f32) {
    dq_send = temporary("dq_send", shape_.rows(chunk));
    dkv_send = temporary("dkv_send", shape_.rows(chunk));
    builder_.emit(fmt::format("round_dq.{}", chunk), LaneKind::compute, Copy{dq, {dq_send, false}});
    builder_.emit(fmt::format("round_dkv.{}", chunk), LaneKind::compute,
                  Copy{dkv, {dkv_send, false}});
  }
  frame.dq[c] = temporary("dq_receive", shape_.rows(chunk));
  frame.dkv[c] = temporary("dkv_receive", shape_.rows(chunk));
  builder_.emit(fmt::format("a2a_dqkv.{}", chunk), LaneKind::comm,
                AllToAll{"sp", {dq_send, dkv_send}, {{frame.dq[c], false}, {frame.dkv[c], false}}});
}

// Reverses project: from dq_i, dkv_i and dh_i to the gradient of the layer's input.
void Lowering::close(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t hidden = model_.hidden;
  const std::int64_t width = model_.qkv_width();
  const std::int64_t first = local_first(chunk);
  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
  Operand n1;
  if (homes.choice.recompute == Recompute::keep_all) {
    n1 = homes.norm_output.fetch(builder_, stored_instance(homes), chunk, Home::Reuse::ring,
                                 LaneKind::h2d);
  } else {
    n1 = temporary("normed", rows);
    norm(fmt::format("renorm1.{}", chunk), "norm1", frame.weights, x, n1, rows);
  }
  JoinHeads join;
  // The norm of heads needs q and k before normalisation; the ones in their homes are normalised.
  if (model_.qk_norm) {
    join.qkv = temporary("qkv", rows);
    linear(fmt::format("reqkv.{}", chunk), "qkv", frame.weights, n1, join.qkv, rows, hidden, width);
    join.dq_weight = states_.gradient_rows("q_norm.weight", Version::plus(0), 0, model_.head_dim);
    join.dk_weight = states_.gradient_rows("k_norm.weight", Version::plus(0), 0, model_.head_dim);
    join.local_first = first;
  }
  head_norm(join, frame.weights);
  const Operand dqkv = temporary(model_.qk_norm ? "qkv_gradient" : "qkv", rows);
  join.dq = frame.dq[c];
  join.dkv = frame.dkv[c];
  join.documents = documents();
  join.dqkv = {dqkv, false};
  join.rows = rows;
  join.heads = model_.heads;
  join.kv_heads = model_.kv_heads;
  join.head_dim = model_.head_dim;
  join.ranks = ranks_;
  join.rotary = rotary();
  join.token_first = token_first(chunk);
  builder_.emit(fmt::format("dheads.{}", chunk), LaneKind::compute, join);
  linear_gradient(fmt::format("{}", chunk), "qkv", dqkv, n1, rows, hidden, width, first);
  const Operand dn1 = temporary("norm_gradient", rows);
  linear_backward(fmt::format("dn1.{}", chunk), "qkv", frame.weights, dqkv, dn1, rows, hidden,
                  width);
  const Operand dh = homes.residual_gradient.fetch(builder_, Version::plus(0), chunk,
                                                   Home::Reuse::ring, LaneKind::h2d);
  const Operand dx = layer_gradient_.produce(builder_, Version::plus(1), chunk);
  norm_backward(fmt::format("dx.{}", chunk), {.layer = "norm1",
                                              .use = frame.weights,
                                              .sum = Version::plus(0),
                                              .x = x,
                                              .dy = dn1,
                                              .addend = dh,
                                              .dx = dx,
                                              .rows = rows,
                                              .local_first = first});
  layer_gradient_.spill(builder_, Version::plus(1), chunk, dx, out_lane());
}

}  // namespace fpdt
