// Emits attention tiles and the transfers of what they stream.
#include "fpdt/plan/lowering/attention.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fpdt {

RankExpression Attention::head_first() const {
  return {0, {head_ranks_ > 1 ? shape_.heads : 0, 0, 1, head_ranks_}};
}

template <class Tile>
void Attention::describe_tile(Tile& tile, std::int64_t q_chunk, std::int64_t k_first,
                              std::int64_t k_last) const {
  tile.documents = documents();
  tile.q_first = query_first(q_chunk);
  tile.q_rows = shape_.query_rows(q_chunk);
  tile.k_first = k_first * shape_.chunk_rows;
  tile.k_rows = (k_last - k_first) * shape_.chunk_rows + shape_.rows(k_last);
  tile.heads = shape_.heads;
  tile.kv_heads = shape_.kv_heads;
  tile.head_dim = model_.head_dim;
  tile.scale = 1.0 / std::sqrt(static_cast<double>(model_.head_dim));
  tile.head_first = head_first();
}

void Attention::row(LayerFrame& frame, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const Instance kept = inputs(frame);
  const Operand o = temporary("o", shape_.query_rows(chunk));
  const Operand lse = homes.lse.produce(builder_, outputs(frame), chunk);
  frame.o[c] = o;
  frame.lse[c] = lse;

  AttentionForward tile;
  tile.q = frame.q[c];
  tile.o = {o, false};
  tile.lse = {lse, false};
  tile.pass = frame.pass;
  const auto emit = [&](std::int64_t first, std::int64_t last, const Operand& kv) {
    tile.kv = kv;
    describe_tile(tile, chunk, first, last);
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
}

Operand Attention::streamed_sum(Home& home, std::int64_t turn, std::int64_t chunk,
                                const char* diagonal, std::int64_t rows) {
  if (chunk >= home.first_kept()) {
    return home.fetch(builder_, Version::plus(0), chunk, Home::Reuse::none, LaneKind::h2d);
  }
  if (diagonal != nullptr) {
    const Operand sum = temporary(diagonal, rows);
    if (turn > 0) {
      home.fetch_into(builder_, Version::plus(turn - 1), chunk, sum, LaneKind::h2d);
    }
    return sum;
  }
  if (turn == 0) return home.produce(builder_, Version::plus(0), chunk);
  return home.fetch(builder_, Version::plus(turn - 1), chunk, Home::Reuse::none, LaneKind::h2d);
}

// With Reuse::latest, the query side of a row's last tile serves the first tile of the next row.
Attention::RowGradient Attention::kv_row(LayerFrame& frame, std::int64_t i) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks;
  const Operand kv = homes.kv.fetch(builder_, inputs(frame), i, reuse(), LaneKind::h2d);
  const Operand dkv = temporary("dkv_sum", shape_.rows(i));
  Operand complete;
  bool first = true;
  for (std::int64_t step = i; step < chunks; ++step) {
    const std::int64_t j =
        strategy_.tiles.serpentine && i % 2 == 1 ? chunks - 1 - (step - i) : step;
    const bool diagonal = j == i;
    const Operand dq =
        streamed_sum(homes.dq, i, j, diagonal ? "dq_diagonal" : nullptr, shape_.query_rows(j));
    backward_tile(frame, j, i, i, kv, {dq, i > 0}, {dkv, !first});
    if (!diagonal) spill_after_fetches({&homes.dq, Version::plus(i), j, dq});
    if (diagonal) complete = dq;
    first = false;
  }
  emit_waiting_spill();  // the next row may begin with this chunk
  return {complete, dkv};
}

Attention::RowGradient Attention::query_row(LayerFrame& frame, std::int64_t i) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks;
  const std::int64_t turn = chunks - 1 - i;
  const Instance kept = inputs(frame);
  const std::int64_t resident =
      strategy_.tiles.long_tiles ? std::max(homes.kv.first_kept(), homes.dkv.first_kept()) : chunks;
  const Operand dq = temporary("dq_sum", shape_.query_rows(i));
  Operand complete;
  bool first = true;
  for (std::int64_t step = 0; step <= i; ++step) {
    const std::int64_t j = strategy_.tiles.serpentine && turn % 2 == 1 ? i - step : step;
    if (j >= resident) {
      if (j != (strategy_.tiles.serpentine && turn % 2 == 1 ? i : resident)) continue;
      backward_tile(frame, i, resident, i, homes.kv.kept_span(kept, resident, i), {dq, !first},
                    {homes.dkv.kept_span(Version::plus(0), resident, i), turn > 0});
      complete = homes.dkv.kept_span(Version::plus(0), i, i);
      first = false;
      continue;
    }
    const bool diagonal = j == i;
    const Operand kv = homes.kv.fetch(builder_, kept, j, reuse(), LaneKind::h2d);
    const Operand dkv =
        streamed_sum(homes.dkv, turn, j, diagonal ? "dkv_diagonal" : nullptr, shape_.rows(j));
    backward_tile(frame, i, j, j, kv, {dq, !first}, {dkv, turn > 0});
    if (!diagonal) spill_after_fetches({&homes.dkv, Version::plus(turn), j, dkv});
    if (diagonal) complete = dkv;
    first = false;
  }
  emit_waiting_spill();
  return {dq, complete};
}

// Copies of one lane run in the order of the file. A spill waits for its tile, so with one lane for
// both directions it would hold up the fetches of the next tile, and nothing would overlap. Without
// prefetch, those fetches need the slot that the spill empties.
void Attention::spill_after_fetches(const WaitingSpill& spill) {
  waiting_spill_ = spill;
  if (strategy_.copies.duplex || strategy_.copies.prefetch_depth == 0) emit_waiting_spill();
}

void Attention::emit_waiting_spill() {
  if (!waiting_spill_) return;
  const WaitingSpill& one = *waiting_spill_;
  one.home->spill(builder_, one.instance, one.chunk, one.value, out_lane());
  waiting_spill_.reset();
}

void Attention::backward_tile(LayerFrame& frame, std::int64_t q_chunk, std::int64_t k_first,
                              std::int64_t k_last, const Operand& kv, const Target& dq,
                              const Target& dkv) {
  Homes& homes = *frame.homes;
  // Both loop orders return to the query chunk that they used last.
  const Home::Reuse mode = reuse();
  AttentionBackward tile;
  tile.q = homes.q.fetch(builder_, inputs(frame), q_chunk, mode, LaneKind::h2d);
  tile.kv = kv;
  tile.dout = homes.dout.fetch(builder_, Version::plus(0), q_chunk, mode, LaneKind::h2d);
  tile.lse = homes.lse.fetch(builder_, outputs(frame), q_chunk, mode, LaneKind::h2d);
  tile.delta = homes.delta.fetch(builder_, Version::plus(0), q_chunk, mode, LaneKind::h2d);
  tile.dq = dq;
  tile.dkv = dkv;
  tile.workspace = workspace();
  describe_tile(tile, q_chunk, k_first, k_last);
  emit_waiting_spill();
  builder_.emit(fmt::format("dattn.{}.{}", q_chunk, k_first), LaneKind::compute, tile);
}

}  // namespace fpdt
