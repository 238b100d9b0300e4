// Emits all-to-alls and gathers, and the ops that pack and unpack them.
#include "fpdt/plan/lowering/transition.h"

#include <array>

#include "fpdt/base/math.h"

namespace fpdt {
Transition::Transition(Context& context) : LoweringPart(context) {
  const auto staging = [&](const char* name, std::int64_t width, Dtype dtype) {
    return rows_of_width(name, shape_.query_rows(0), width, dtype, overlaps() ? 2 : 1,
                         Category::communication);
  };
  kv_own_ = staging("kv_own", kv_width(), storage_);
  dkv_own_ = staging("dkv_own", kv_width(), Dtype::f32);
  const std::int64_t extent = shape_.extent_product_rows(0);
  dcontext_ = rows_of_width("dcontext", extent, part_.q_width(), storage_);
  delta_ = rows_of_width("delta_chunk", extent, part_.heads, Dtype::f32);
  q_send_ = staging("q_send", q_width(), storage_);
  kv_send_ = staging("kv_send", kv_width(), storage_);
  o_send_ = staging("o_send", q_width(), storage_);
  o_receive_ = staging("o_receive", q_width(), storage_);
  dout_send_ = staging("dout_send", q_width(), storage_);
  delta_send_ = staging("delta_send", shape_.heads, Dtype::f32);
  dq_send_ = staging("dq_send", q_width(), storage_);
  dkv_send_ = staging("dkv_send", kv_width(), storage_);
  dq_receive_ = staging("dq_receive", q_width(), storage_);
  dkv_receive_ = staging("dkv_receive", kv_width(), storage_);
}

Rotary Transition::rotary(const LayerKind& kind) const {
  const RotarySpec& spec = kind.rotary;
  return {model_.rotary_dim(kind),
          spec.theta,
          spec.factor,
          spec.low_frequency_factor,
          spec.high_frequency_factor,
          spec.original_positions,
          same_word<ScalingKind>(spec.scaling),
          spec.magnitude,
          spec.pair_factors(problem_.seq_len)};
}

template <class Heads>
void Transition::describe_heads(Heads& body, const LayerFrame& frame, std::int64_t chunk,
                                Which which) const {
  if (which != Which::keys) {
    body.heads = part_.heads;
    if (norms_each_head()) body.q_weight = optional_weight("q_norm.weight", frame.weights);
  }
  if (which != Which::queries) {
    body.kv_heads = part_.kv_heads;
    if (norms_each_head()) body.k_weight = optional_weight("k_norm.weight", frame.weights);
  }
  if (norms_each_head()) body.epsilon = model_.norm_epsilon;
  body.documents = documents();
  body.rows = shape_.product_rows(chunk);
  body.head_dim = model_.head_dim;
  body.ranks = head_ranks_;
  body.rotary = rotary(*frame.kind);
  body.token_first = product_first(chunk);
}

void Transition::split_heads(const LayerFrame& frame, std::int64_t chunk, const Operand& rows,
                             Which which, const Operand& q, const Operand& kv) {
  SplitHeads split;
  split.qkv = rows;
  describe_heads(split, frame, chunk, which);
  if (which != Which::keys) split.q.operand = q;
  if (which != Which::queries) split.kv.operand = kv;
  constexpr std::array<const char*, 3> kNames{"heads", "heads_q", "heads_kv"};
  builder_.emit(builder_.name("{}.{}", kNames[static_cast<std::size_t>(which)], chunk),
                LaneKind::compute, split);
}

void Transition::to_heads(LayerFrame& frame, std::int64_t chunk, const Projected& qkv) {
  Homes& homes = *frame.homes;
  const Operand q = homes.q.produce(builder_, inputs(frame), chunk);
  const Operand kv = homes.kv.produce(builder_, inputs(frame), chunk);
  const Operand own = own_keys(chunk, kv);
  const Sent sent{send_of(q_send_, chunk, q), send_of(kv_send_, chunk, own)};
  if (qkv.keys.present()) {
    split_heads(frame, chunk, qkv.queries, Which::queries, sent.q, {});
    split_heads(frame, chunk, qkv.keys, Which::keys, {}, sent.kv);
  } else {
    split_heads(frame, chunk, qkv.queries, Which::all, sent.q, sent.kv);
  }
  if (head_ranks_ > 1) {
    builder_.emit(builder_.name("a2a_qkv.{}", chunk), LaneKind::comm,
                  AllToAll{"sp", {sent.q, sent.kv}, {{q, false}, {own, false}}});
  }
  gather_keys(chunk, own, kv);
  // Forward needs q only now, or once a hop.
  const bool stored = frame.stores(Recompute::keep_all) || frame.visit == Visit::backward;
  if (stored || shape_.hops > 1) homes.q.spill(builder_, inputs(frame), chunk, q, out_lane());
  frame.q[index(chunk)] = q;
  hold_keys(frame, chunk, kv);
}

void Transition::queries_to_heads(LayerFrame& frame, std::int64_t chunk, const Operand& rows) {
  const Operand q = frame.homes->q.produce(builder_, inputs(frame), chunk);
  const Operand sent = send_of(q_send_, chunk, q);
  split_heads(frame, chunk, rows, Which::queries, sent, {});
  if (head_ranks_ > 1) {
    builder_.emit(builder_.name("a2a_q.{}", chunk), LaneKind::comm,
                  AllToAll{"sp", {sent}, {{q, false}}});
  }
  frame.q[index(chunk)] = q;
}

void Transition::keys_to_heads(LayerFrame& frame, std::int64_t chunk, const Operand& rows) {
  const Operand kv = frame.homes->kv.produce(builder_, inputs(frame), chunk);
  const Operand own = own_keys(chunk, kv);
  const Operand sent = send_of(kv_send_, chunk, own);
  split_heads(frame, chunk, rows, Which::keys, {}, sent);
  if (head_ranks_ > 1) {
    builder_.emit(builder_.name("a2a_kv.{}", chunk), LaneKind::comm,
                  AllToAll{"sp", {sent}, {{own, false}}});
  }
  gather_keys(chunk, own, kv);
  hold_keys(frame, chunk, kv);
}

// Keys and values of the chunk's queries on this rank. A ring gathers them.
Operand Transition::own_keys(std::int64_t chunk, const Operand& kv) {
  return shape_.gathers_keys() ? temporary(kv_own_, shape_.query_rows(chunk)) : kv;
}

// What an all-to-all sends to make a value.
Operand Transition::send_of(BufferId staging, std::int64_t chunk, const Operand& value) {
  return head_ranks_ == 1 ? value : temporary(staging, shape_.query_rows(chunk));
}

void Transition::gather_keys(std::int64_t chunk, const Operand& own, const Operand& kv) {
  if (!shape_.gathers_keys()) return;
  builder_.emit(builder_.name("gather_kv.{}", chunk), LaneKind::comm,
                AllGather{ring_of(chunk), {own}, {{kv, false}}});
}

// Forward needs K/V also in later rows of this layer.
void Transition::hold_keys(LayerFrame& frame, std::int64_t chunk, const Operand& kv) {
  const bool stored = frame.stores(Recompute::keep_all) || frame.visit == Visit::backward;
  if (stored || chunk + 1 < frame.rows) {
    frame.homes->kv.spill(builder_, inputs(frame), chunk, kv, out_lane());
  }
  frame.kv[index(chunk)] = kv;
}

void Transition::output_to_rows(LayerFrame& frame, std::int64_t chunk) {
  if (head_ranks_ == 1) return;
  Operand& o = frame.o[static_cast<std::size_t>(chunk)];
  Operand send = o;
  if (storage_ != Dtype::f32) {
    send = temporary(o_send_, shape_.query_rows(chunk));
    builder_.emit(builder_.name("round_o.{}", chunk), LaneKind::compute, Copy{o, {send, false}});
  }
  const Operand receive = temporary(o_receive_, shape_.query_rows(chunk));
  builder_.emit(builder_.name("a2a_o.{}", chunk), LaneKind::comm,
                AllToAll{"sp", {send}, {{receive, false}}});
  o = receive;
}

void Transition::join_output(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const Instance stored = outputs(frame);
  const std::int64_t extent = shape_.extent_of(chunk);
  Operand& whole = frame.attention_output[index(extent)];
  if (enters(chunk, Loop::up)) whole = homes.attention_output.produce(builder_, stored, extent);
  builder_.emit(builder_.name("join_o.{}", chunk), LaneKind::compute,
                Permute{frame.o[c],
                        {chunk_of(whole, chunk), false},
                        head_ranks_,
                        shape_.product_rows(chunk),
                        q_width()});
  const bool repeated = chunk < homes.choice.repeated(shape_.chunks);
  const bool repeats = frame.visit == Visit::backward ||
                       (frame.visit == Visit::rerun && !frame.stores(Recompute::from_input));
  if (repeated != repeats) return;
  if (leaves(chunk, Loop::up)) {
    homes.attention_output.spill(builder_, stored, extent, whole, out_lane());
  }
  homes.lse.spill(builder_, stored, chunk, frame.lse[c], out_lane());
}

OutputGradient Transition::output_gradient(LayerFrame& frame, std::int64_t extent) {
  if (one_layout()) {
    return {frame.homes->dout.produce(builder_, Version::plus(0), extent),
            frame.homes->delta.produce(builder_, Version::plus(0), extent)};
  }
  const std::int64_t rows = shape_.extent_product_rows(extent);
  return {temporary(dcontext_, rows), temporary(delta_, rows)};
}

void Transition::output_gradient_to_heads(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const OutputGradient& of = frame.gradient[index(shape_.extent_of(chunk))];
  Operand& dout = frame.dout[index(chunk)];
  Operand& delta = frame.delta[index(chunk)];
  dout = of.dcontext;
  delta = of.delta;
  if (!one_layout()) {
    const auto sent = [&](BufferId send, const char* name, Home& home, std::int64_t row,
                          const Operand& extent) {
      const Operand packed = head_ranks_ > 1 ? temporary(send, shape_.query_rows(chunk))
                                             : home.produce(builder_, Version::plus(0), chunk);
      builder_.emit(builder_.name("{}.{}", name, chunk), LaneKind::compute,
                    Permute{chunk_of(extent, chunk),
                            {packed, false},
                            shape_.product_rows(chunk),
                            head_ranks_,
                            row});
      return packed;
    };
    dout = sent(dout_send_, "dout_send", homes.dout, q_width(), of.dcontext);
    delta = sent(delta_send_, "delta_send", homes.delta, shape_.heads, of.delta);
  }
  if (head_ranks_ > 1) {
    const std::vector<Operand> packed{dout, delta};
    dout = homes.dout.produce(builder_, Version::plus(0), chunk);
    delta = homes.delta.produce(builder_, Version::plus(0), chunk);
    builder_.emit(builder_.name("a2a_dout.{}", chunk), LaneKind::comm,
                  AllToAll{"sp", packed, {{dout, false}, {delta, false}}});
  }
  homes.dout.spill(builder_, Version::plus(0), chunk, dout, out_lane());
  homes.delta.spill(builder_, Version::plus(0), chunk, delta, out_lane());
}

void Transition::gradients_to_rows(LayerFrame& frame, std::int64_t chunk, const Operand& dq,
                                   const Operand& dkv) {
  const auto c = static_cast<std::size_t>(chunk);
  frame.dq[c] = dq;
  frame.dkv[c] = shape_.gathers_keys() ? summed_over_ring(dkv, chunk) : dkv;
  if (head_ranks_ == 1) return;
  const std::int64_t rows = shape_.query_rows(chunk);
  Operand dq_send = frame.dq[c];
  Operand dkv_send = frame.dkv[c];
  if (storage_ != Dtype::f32) {
    dq_send = temporary(dq_send_, rows);
    dkv_send = temporary(dkv_send_, rows);
    builder_.emit(builder_.name("round_dq.{}", chunk), LaneKind::compute,
                  Copy{frame.dq[c], {dq_send, false}});
    builder_.emit(builder_.name("round_dkv.{}", chunk), LaneKind::compute,
                  Copy{frame.dkv[c], {dkv_send, false}});
  }
  frame.dq[c] = temporary(dq_receive_, rows);
  frame.dkv[c] = temporary(dkv_receive_, rows);
  builder_.emit(builder_.name("a2a_dqkv.{}", chunk), LaneKind::comm,
                AllToAll{"sp", {dq_send, dkv_send}, {{frame.dq[c], false}, {frame.dkv[c], false}}});
}

// This rank's queries gave every key of the chunk a part of its gradient. The sum of the parts goes
// to the rank that has the key.
Operand Transition::summed_over_ring(const Operand& dkv, std::int64_t chunk) {
  const Operand own = temporary(dkv_own_, shape_.query_rows(chunk));
  builder_.emit(
      builder_.name("sum_dkv.{}", chunk), LaneKind::comm,
      ReduceScatter{ring_of(chunk), {dkv}, {{own, false}}, states_.next_workspace(builder_)});
  return own;
}

void Transition::join_gradients(LayerFrame& frame, std::int64_t chunk, const Projected& qkv,
                                const Projected& dqkv) {
  if (!dqkv.keys.present()) {
    return join_heads(frame, chunk, qkv.queries, dqkv.queries, Which::all);
  }
  join_heads(frame, chunk, qkv.queries, dqkv.queries, Which::queries);
  join_heads(frame, chunk, qkv.keys, dqkv.keys, Which::keys);
}

void Transition::join_heads(const LayerFrame& frame, std::int64_t chunk, const Operand& rows,
                            const Operand& gradient, Which which) {
  JoinHeads join;
  const auto of_norm = [&](const char* name) {
    return states_.gradient_rows(name, Version::plus(0), 0, model_.head_dim);
  };
  if (norms_each_head()) {
    join.qkv = rows;
    if (which != Which::keys) join.dq_weight = of_norm("q_norm.weight");
    if (which != Which::queries) join.dk_weight = of_norm("k_norm.weight");
    join.local_first = shape_.local_first(chunk) * shape_.tensor_ranks;
  }
  describe_heads(join, frame, chunk, which);
  if (which != Which::keys) join.dq = frame.dq[index(chunk)];
  if (which != Which::queries) join.dkv = frame.dkv[index(chunk)];
  join.dqkv = {gradient, false};
  constexpr std::array<const char*, 3> kNames{"dheads", "dheads_q", "dheads_kv"};
  builder_.emit(builder_.name("{}.{}", kNames[static_cast<std::size_t>(which)], chunk),
                LaneKind::compute, join);
}

}  // namespace fpdt
