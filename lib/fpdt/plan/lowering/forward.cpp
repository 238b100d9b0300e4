// Forward of a layer, chunk by chunk; the same code repeats it in backward.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/plan/lowering/lowering.h"

namespace fpdt {

// With overlap, compute runs project(i+1), tiles(i), finish(i-1): the all-to-alls of chunk i+1's q,
// kv and of chunk i-1's output are on their lane while chunk i's tiles run.
void Lowering::forward_rows(Frame& frame) {
  const std::int64_t chunks = shape_.chunks;
  const auto complete = [&](std::int64_t i) {
    collect(frame, i);
    if (frame.pass == Pass::forward) finish(frame, i);
  };
  if (overlap() == 0) {
    for (std::int64_t i = 0; i < chunks; ++i) {
      project(frame, i);
      tiles(frame, i);
      complete(i);
    }
    return;
  }
  project(frame, 0);
  for (std::int64_t i = 0; i < chunks; ++i) {
    if (i + 1 < chunks) project(frame, i + 1);
    tiles(frame, i);
    if (i > 0) complete(i - 1);
  }
  complete(chunks - 1);
}

void Lowering::forward_block(const std::string& name, Homes& homes, Pass pass,
                             const Version& weights, const Stream& input, const Stream& output) {
  begin_block(name);
  Frame frame;
  frame.homes = &homes;
  frame.pass = pass;
  frame.weights = weights;
  frame.input = input;
  frame.output = output;
  const auto chunks = static_cast<std::size_t>(shape_.chunks);
  for (auto* list :
       {&frame.x, &frame.q, &frame.kv, &frame.o, &frame.attention_output, &frame.lse}) {
    list->resize(chunks);
  }
  forward_rows(frame);
  advance_repeated(homes);
  builder_.end_block();
}

// A tensor that is not stored across the step begins a new instance in every block that makes it.
void Lowering::advance_repeated(const Homes& homes) {
  if (homes.choice.recompute != Recompute::keep_all) {
    homes.q.advance(builder_, 1);
    homes.kv.advance(builder_, 1);
  }
  if (homes.choice.recompute == Recompute::from_input) {
    homes.attention_output.advance(builder_, 1);
    homes.lse.advance(builder_, 1);
  }
}

// Computes q_i and kv_i in head layout from x_i.
void Lowering::project(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Instance kept = all ? stored_instance(homes) : Version::plus(0);

  const Operand x =
      frame.input.home->fetch(builder_, frame.input.instance, chunk, reuse(), LaneKind::h2d);
  frame.x[c] = x;
  const Operand n1 =
      all ? homes.norm_output.produce(builder_, kept, chunk) : temporary("normed", rows);
  norm(fmt::format("norm1.{}", chunk), "norm1", frame.weights, x, n1, rows);
  if (all) homes.norm_output.spill(builder_, kept, chunk, n1, out_lane());
  const Operand qkv = temporary("qkv", rows);
  linear(fmt::format("qkv.{}", chunk), "qkv", frame.weights, n1, qkv, rows, model_.hidden,
         model_.qkv_width());

  const Operand q = homes.q.produce(builder_, kept, chunk);
  const Operand kv = homes.kv.produce(builder_, kept, chunk);
  SplitHeads split;
  split.qkv = qkv;
  head_norm(split, frame.weights);
  split.documents = documents();
  split.rows = rows;
  split.heads = model_.heads;
  split.kv_heads = model_.kv_heads;
  split.head_dim = model_.head_dim;
  split.ranks = ranks_;
  split.rotary = rotary();
  split.token_first = token_first(chunk);
  if (ranks_ == 1) {
    split.q.operand = q;
    split.kv.operand = kv;
    builder_.emit(fmt::format("heads.{}", chunk), LaneKind::compute, split);
  } else {
    split.q.operand = temporary("q_send", shape_.rows(chunk));
    split.kv.operand = temporary("kv_send", shape_.rows(chunk));
    builder_.emit(fmt::format("heads.{}", chunk), LaneKind::compute, split);
    builder_.emit(fmt::format("a2a_qkv.{}", chunk), LaneKind::comm,
                  AllToAll{"sp", {split.q.operand, split.kv.operand}, {{q, false}, {kv, false}}});
  }
  // Forward needs q only now, but K/V also in later rows of this layer.
  if (all || frame.pass == Pass::recompute) homes.q.spill(builder_, kept, chunk, q, out_lane());
  if (all || frame.pass == Pass::recompute || chunk + 1 < shape_.chunks) {
    homes.kv.spill(builder_, kept, chunk, kv, out_lane());
  }
  frame.q[c] = q;
  frame.kv[c] = kv;
}

// The row of attention tiles of chunk i; sends its output back to sequence layout.
void Lowering::tiles(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const Instance kept = all ? stored_instance(homes) : Version::plus(0);
  const Instance outputs =
      homes.choice.recompute == Recompute::from_input ? Version::plus(0) : stored_instance(homes);
  const Operand o = temporary("o", shape_.rows(chunk));
  const Operand lse = homes.lse.produce(builder_, outputs, chunk);
  frame.o[c] = o;
  frame.lse[c] = lse;

  AttentionForward tile;
  tile.q = frame.q[c];
  tile.documents = documents();
  tile.o = {o, false};
  tile.lse = {lse, false};
  tile.q_first = chunk * shape_.chunk_rows;
  tile.q_rows = shape_.rows(chunk);
  tile.heads = shape_.heads;
  tile.kv_heads = shape_.kv_heads;
  tile.head_dim = model_.head_dim;
  tile.scale = 1.0 / std::sqrt(static_cast<double>(model_.head_dim));
  tile.pass = frame.pass;
  tile.head_first = head_first();
  const auto emit = [&](std::int64_t first, std::int64_t last, const Operand& kv) {
    tile.kv = kv;
    tile.k_first = first * shape_.chunk_rows;
    tile.k_rows = last * shape_.chunk_rows + shape_.rows(last) - tile.k_first;
    tile.workspace = workspace();
    builder_.emit(fmt::format("attn.{}.{}", chunk, first), LaneKind::compute, tile);
    tile.o.accumulate = tile.lse.accumulate = true;
  };
  const std::int64_t resident = std::max<std::int64_t>(homes.kv.first_kept(), 0);
  const bool descending = strategy_.tiles.serpentine && chunk % 2 == 1;
  for (std::int64_t step = 0; step <= chunk; ++step) {
    const std::int64_t j = descending ? chunk - step : step;
    if (strategy_.tiles.long_tiles && j >= resident) {
      if (j == (descending ? chunk : resident)) {
        emit(resident, chunk, homes.kv.kept_span(kept, resident, chunk));
      }
      continue;
    }
    if (j == chunk) {
      homes.kv.used(j, frame.kv[c]);
      emit(j, j, frame.kv[c]);
    } else {
      emit(j, j, homes.kv.fetch(builder_, kept, j, reuse(), LaneKind::h2d));
    }
  }
  if (ranks_ == 1) return;
  Operand send = o;
  if (storage_ != Dtype::f32) {
    send = temporary("o_send", shape_.rows(chunk));
    builder_.emit(fmt::format("round_o.{}", chunk), LaneKind::compute, Copy{o, {send, false}});
  }
  const Operand receive = temporary("o_receive", shape_.rows(chunk));
  builder_.emit(fmt::format("a2a_o.{}", chunk), LaneKind::comm,
                AllToAll{"sp", {send}, {{receive, false}}});
  frame.o[c] = receive;
}

// Receives the attention output of chunk i in sequence layout, and stores what backward needs of
// this row.
void Lowering::collect(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const bool from_input = homes.choice.recompute == Recompute::from_input;
  const Instance outputs = from_input ? Version::plus(0) : stored_instance(homes);
  const Operand whole = homes.attention_output.produce(builder_, outputs, chunk);
  builder_.emit(fmt::format("join_o.{}", chunk), LaneKind::compute,
                Permute{frame.o[c],
                        {whole, false},
                        ranks_,
                        shape_.local_rows(chunk),
                        shape_.heads * model_.head_dim});
  frame.attention_output[c] = whole;
  if (!from_input || frame.pass == Pass::recompute) {
    homes.attention_output.spill(builder_, outputs, chunk, whole, out_lane());
    homes.lse.spill(builder_, outputs, chunk, frame.lse[c], out_lane());
  }
}

// Residual, second norm and feed-forward of chunk i: the input of the next layer.
void Lowering::finish(Frame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const std::int64_t rows = shape_.local_rows(chunk);
  const std::int64_t most = shape_.local_rows(0);
  const std::int64_t hidden = model_.hidden;
  const bool all = homes.choice.recompute == Recompute::keep_all;
  const bool parallel = model_.parallel_residual;
  const Instance stored = stored_instance(homes);
  const bool keep = all && !parallel;
  const Operand h =
      keep ? homes.residual.produce(builder_, stored, chunk) : temporary("residual_chunk", rows);
  linear(fmt::format("out.{}", chunk), "out", frame.weights, frame.attention_output[c], h, rows,
         model_.q_width(), hidden, frame.x[c]);
  if (keep) homes.residual.spill(builder_, stored, chunk, h, out_lane());
  const Operand n2 = temporary("normed", rows);
  norm(fmt::format("norm2.{}", chunk), "norm2", frame.weights, parallel ? frame.x[c] : h, n2, rows);
  const Operand y = frame.output.home->produce(builder_, frame.output.instance, chunk);
  const Operand up_all = all ? homes.ffn_hidden.produce(builder_, stored, chunk) : Operand{};
  const std::int64_t tile =
      strategy_.tiles.ffn_rows > 0 ? std::min(strategy_.tiles.ffn_rows, most) : most;
  const auto activation = activation_kind();
  for (std::int64_t first = 0; first < rows; first += tile) {
    const std::int64_t r = std::min(tile, rows - first);
    const Operand up = all ? rows_of(up_all, first, r) : temporary("up", r);
    linear(fmt::format("up.{}.{}", chunk, first), "up", frame.weights, rows_of(n2, first, r), up, r,
           hidden, model_.up_width());
    const Operand act = temporary("act", r);
    builder_.emit(fmt::format("act.{}.{}", chunk, first), LaneKind::compute,
                  Activation{up, {act, false}, activation, r, model_.feed_forward});
    linear(fmt::format("down.{}.{}", chunk, first), "down", frame.weights, act,
           rows_of(y, first, r), r, model_.feed_forward, hidden, rows_of(h, first, r));
  }
  if (all) homes.ffn_hidden.spill(builder_, stored, chunk, up_all, out_lane());
  frame.output.home->spill(builder_, frame.output.instance, chunk, y, out_lane());
}

}  // namespace fpdt
