// Runs the parts of a layer over its chunks.
#include "fpdt/plan/lowering/layers.h"

#include <algorithm>

namespace fpdt {

LayerFrame Layers::begin(const std::string& name, const LayerBlock& block) {
  context_.begin_block(name);
  LayerFrame frame;
  frame.visit = block.visit;
  frame.kind = block.kind;
  frame.hops = shape_.hops_of(*block.kind);
  frame.homes = block.homes;
  frame.halo.rows = shape_.halo_rows(*block.kind);
  if (frame.halo.rows > 0) {
    frame.halo.kv_ring = frame.homes->kv_ring.with_rows(frame.halo.rows);
    frame.halo.dkv_ring = frame.homes->dkv_ring.with_rows(frame.halo.rows);
    frame.halo.dkv = frame.homes->dkv.with_rows(frame.halo.rows);
  }
  frame.weights = block.weights;
  frame.input = block.input;
  frame.output = block.output;
  frame.dy = block.dy;
  frame.dx = block.dx;
  if (block.visit == Visit::forward) {
    frame.rows = shape_.chunks;
  } else if (!block.found) {
    frame.rows = block.homes->choice.repeated(shape_.chunks);
  }
  frame.projections = frame.rows;
  if (block.visit == Visit::backward) {
    frame.projections = frame.stores(Recompute::keep_all) ? 0 : shape_.chunks;
  }
  for (auto* list : {&frame.q, &frame.kv, &frame.o, &frame.lse, &frame.dout, &frame.delta,
                     &frame.dq, &frame.dkv}) {
    list->resize(static_cast<std::size_t>(shape_.chunks));
  }
  for (auto* list :
       {&frame.x, &frame.n1, &frame.attention_output, &frame.branch, &frame.dh, &frame.dn1}) {
    list->resize(static_cast<std::size_t>(shape_.extents));
  }
  frame.gradient.resize(static_cast<std::size_t>(shape_.extents));
  return frame;
}

void Layers::emit(const std::string& name, const LayerBlock& block) {
  LayerFrame frame = begin(name, block);
  if (block.visit == Visit::backward) {
    backward(frame);
  } else {
    forward_rows(frame);
    advance_repeated(frame);
  }
  builder_.end_block();
}

void Layers::backward(LayerFrame& frame) {
  Homes& homes = *frame.homes;
  if (!states_.resumes_sums()) {
    states_.emit_fill(builder_, states_.layer_names(), Version::plus(0));
  }
  forward_rows(frame);
  travel_.begin_backward(frame);
  if (strategy_.tiles.backward_order == BackwardOrder::kv_outer) {
    kv_outer(frame);
  } else {
    query_outer(frame);
  }
  states_.emit_reduce(builder_, states_.layer_names(), Version::plus(0), "reduce_gradients");
  advance_repeated(frame);
  for (const Home* home : {&homes.residual_gradient, &homes.dout, &homes.delta}) {
    home->advance(builder_, 1);
  }
  // The streamed accumulator begins a new value in every row.
  homes.dq.advance(builder_, shape_.hops * shape_.chunks);
  homes.dkv.advance(builder_, shape_.hops * shape_.chunks);
  context_.advance_gradient();
}

// With overlap, compute runs project(i+1), row(i), feed_forward(i-1). The all-to-alls of q and kv
// of chunk i+1 and of the output of chunk i-1 are on their lane while the tiles of chunk i run.
// With several hops, projections belong to the first and outputs to the last. Reruns and backward
// repeat what is not stored: attention of the first chunks, and projections.
void Layers::forward_rows(LayerFrame& frame) {
  const std::int64_t rows = frame.rows;
  std::int64_t projected = 0;
  const auto project_up_to = [&](std::int64_t end) {
    for (; projected < std::min(end, frame.projections); ++projected) {
      rows_.project(frame, projected);
    }
  };
  const auto feed_forward = [&](std::int64_t i) {
    if (frame.visit == Visit::backward || !leaves(i, Loop::up)) return;
    rows_.feed_forward(frame, shape_.extent_of(i));
  };
  const auto complete = [&](std::int64_t i) {
    transition_.join_output(frame, i);
    feed_forward(i);
  };
  if (overlaps()) project_up_to(1);
  for (std::int64_t hop = 0; hop < frame.hops; ++hop) {
    const bool last = hop + 1 == frame.hops;
    for (std::int64_t i = 0; i < rows; ++i) {
      project_up_to(overlaps() ? i + 2 : i + 1);
      attention_.row(frame, hop, i);
      if (last) transition_.output_to_rows(frame, i);
      const std::int64_t before = overlaps() ? i - 1 : i;
      if (last && before >= 0) complete(before);
    }
  }
  if (overlaps() && rows > 0) complete(rows - 1);
  project_up_to(shape_.chunks);
  for (std::int64_t i = rows; i < shape_.chunks; ++i) feed_forward(i);
  if (rows > 0) frame.arrivals += frame.hops - 1;
}

// Rows are KV chunks.
void Layers::kv_outer(LayerFrame& frame) {
  const std::int64_t chunks = shape_.chunks;
  for (std::int64_t i = 0; i < chunks; ++i) rows_.feed_forward_backward(frame, i);
  for (std::int64_t hop = frame.hops - 1; hop >= 0; --hop) {
    for (std::int64_t i = 0; i < chunks; ++i) {
      const auto [dq, dkv] = attention_.kv_row(frame, hop, i);
      if (hop > 0) continue;
      transition_.gradients_to_rows(frame, i, dq, dkv);
      if (!overlaps()) rows_.projection_backward(frame, i);
      if (overlaps() && i > 0) rows_.projection_backward(frame, i - 1);
    }
  }
  if (overlaps()) rows_.projection_backward(frame, chunks - 1);
}

// Rows are query chunks, last first.
void Layers::query_outer(LayerFrame& frame) {
  const std::int64_t last = shape_.chunks - 1;
  const auto to_heads = [&](std::int64_t i) {
    rows_.feed_forward_backward(frame, i);
    rows_.project_queries(frame, i);
  };
  if (overlaps()) to_heads(last);
  for (std::int64_t hop = frame.hops - 1; hop >= 0; --hop) {
    for (std::int64_t i = last; i >= 0; --i) {
      const std::int64_t next = overlaps() ? i - 1 : i;
      if (hop + 1 == frame.hops && next >= 0) to_heads(next);
      const auto [dq, dkv] = attention_.query_row(frame, hop, i);
      if (hop > 0) continue;
      transition_.gradients_to_rows(frame, i, dq, dkv);
      if (!overlaps()) rows_.projection_backward(frame, i);
      if (overlaps() && i < last) rows_.projection_backward(frame, i + 1);
    }
  }
  if (overlaps()) rows_.projection_backward(frame, 0);
}

// A tensor that is not stored across the step begins a new instance in every block that makes it.
void Layers::advance_repeated(const LayerFrame& frame) {
  const Homes& homes = *frame.homes;
  if (homes.choice.recompute != Recompute::keep_all && frame.projections > 0) {
    homes.q.advance(builder_, 1);
    homes.kv.advance(builder_, 1);
  }
  if (homes.choice.recompute == Recompute::from_input) {
    homes.attention_output.advance(builder_, 1);
    homes.lse.advance(builder_, 1);
  }
  travel_.advance(frame);
}

}  // namespace fpdt
