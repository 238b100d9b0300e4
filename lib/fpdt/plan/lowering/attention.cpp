// Emits attention tiles and the transfers of what they stream.
#include "fpdt/plan/lowering/attention.h"

#include <algorithm>

#include "fpdt/base/math.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/spec/attention_kernels.h"

namespace fpdt {
namespace {

constexpr const char* kSinks = "sinks.weight";

}  // namespace

Attention::Attention(Context& context, Travel& travel) : LoweringPart(context), travel_(travel) {
  const auto sum = [&](const char* name, std::int64_t rows, std::int64_t width) {
    return rows_of_width(name, rows, width, Dtype::f32, overlaps() ? 2 : 1);
  };
  output_ = sum("o", shape_.query_rows(0), q_width());
  dq_diagonal_ = sum("dq_diagonal", shape_.query_rows(0), q_width());
  dq_sum_ = sum("dq_sum", shape_.query_rows(0), q_width());
  dkv_diagonal_ = sum("dkv_diagonal", shape_.key_rows(0), kv_width());
  dkv_sum_ = sum("dkv_sum", shape_.key_rows(0), kv_width());
  const std::vector<LibraryTiles>& library = context.library;
  if (std::none_of(library.begin(), library.end(), [](auto& of_kind) { return of_kind.any(); })) {
    return;
  }
  std::int64_t most = 0;
  for (const LayerClass& choice : strategy_.layer_classes) {
    most = std::max(most, workspace_bytes(choice));
  }
  workspace_ = builder_.declare({"workspace",
                                 MemorySpace::device,
                                 Role::temporary,
                                 Category::activations,
                                 Dtype::f32,
                                 {div_exact(most, 4)},
                                 1,
                                 kUnplaced});
}

// The library's workspace of the largest tile. Forward does not depend on the keys. A backward tile
// has the keys of one chunk, or of all chunks up to its own whose K/V and their gradients are on
// the device; the last chunk may be shorter.
std::int64_t Attention::workspace_bytes(const LayerClass& choice) const {
  const auto bytes = [&](AttentionDirection direction, std::int64_t rows, std::int64_t keys) {
    return attention_workspace_bytes(direction, rows, keys, shape_.heads, shape_.kv_heads,
                                     model_.head_dim)
        .value;
  };
  using enum AttentionDirection;
  const std::int64_t keys = shape_.key_rows(0);
  const std::int64_t queries = shape_.query_rows(0);
  const std::int64_t last_keys = shape_.key_rows(shape_.chunks - 1);
  const std::int64_t last = shape_.query_rows(shape_.chunks - 1);
  const std::int64_t least = std::max(
      {bytes(forward, queries, keys), bytes(backward, queries, keys), bytes(backward, last, keys)});
  const bool query_outer = strategy_.tiles.backward_order == BackwardOrder::q_outer;
  if (!strategy_.tiles.long_tiles || !query_outer) return least;
  const std::int64_t resident = std::min(shape_.parts(choice, TensorClass::kv).kept,
                                         shape_.parts(choice, TensorClass::dkv).kept);
  if (resident == 0) return least;
  const std::int64_t before = (resident - 1) * shape_.chunk_rows;
  return std::max({least, bytes(backward, last, before + last_keys),
                   bytes(backward, queries, std::max(keys, before))});
}

const LibraryTiles& Attention::of_library(const LayerFrame& frame) const {
  return context_.library[index(frame.kind - model_.kinds.data())];
}

Operand Attention::workspace(const LayerFrame& frame, const Place& place) {
  const bool diagonal =
      of_library(frame).diagonal && place.hop == 0 && place.k_first == place.q_chunk;
  if (!diagonal && place.q_chunk - place.k_first >= of_library(frame).chunks) return {};
  return builder_.next(builder_.use(workspace_));
}

RankExpression Attention::head_first() const {
  const std::int64_t tensor = shape_.tensor_ranks;
  RankExpression first{0, {head_ranks_ > 1 ? shape_.heads : 0, 0, tensor, head_ranks_}};
  if (tensor > 1) first.second = {part_.heads, 0, 1, tensor};
  return first;
}

std::string Attention::Place::name(const Builder& builder, const char* what) const {
  return hop > 0 ? builder.name("{}.{}.{}.{}", what, q_chunk, k_first, hop)
                 : builder.name("{}.{}.{}", what, q_chunk, k_first);
}

template <class Tile>
void Attention::describe_tile(Tile& tile, const LayerFrame& frame, const Place& place) const {
  tile.window = frame.kind->window_in(problem_.seq_len);
  tile.documents = documents();
  tile.q_first = query_first(place.q_chunk);
  tile.q_rows = shape_.query_rows(place.q_chunk);
  tile.k_first = key_first(frame, place.k_first, place.hop);
  tile.k_rows =
      (place.k_last - place.k_first) * shape_.chunk_rows + key_rows(frame, place.k_last, place.hop);
  tile.heads = shape_.heads;
  tile.kv_heads = shape_.kv_heads;
  tile.head_dim = model_.head_dim;
  tile.scale = model_.score_scale();
  tile.cap = model_.attention_cap;
  tile.head_first = head_first();
}

void Attention::row(LayerFrame& frame, std::int64_t hop, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const auto c = static_cast<std::size_t>(chunk);
  const Instance kept = inputs(frame);
  const std::int64_t rows = shape_.query_rows(chunk);
  const Operand o =
      shape_.hops == 1
          ? temporary(output_, rows)
          : streamed_sum(homes.attention_sum, Continued::after(hop), chunk,
                         is_last(frame, hop) ? std::optional(output_) : std::nullopt, rows);
  const Operand lse = lse_sum(frame, hop, chunk);
  frame.o[c] = o;
  frame.lse[c] = lse;

  AttentionForward tile;
  const bool made = hop == 0 && frame.q[c].present();  // in this block
  tile.q = made ? frame.q[c] : homes.q.fetch(builder_, kept, chunk, reuse(), LaneKind::h2d);
  tile.o = {o, hop > 0};
  tile.lse = {lse, hop > 0};
  tile.pass = frame.visit == Visit::forward ? Pass::forward : Pass::recompute;
  const auto emit = [&](std::int64_t first, std::int64_t last, const Operand& kv) {
    const Place place{hop, chunk, first, last};
    tile.kv = kv;
    describe_tile(tile, frame, place);
    tile.workspace = workspace(frame, place);
    builder_.emit(place.name(builder_, "attn"), LaneKind::compute, tile);
    tile.o.accumulate = tile.lse.accumulate = true;
  };
  const std::int64_t oldest = first_seen(frame, chunk);
  const std::int64_t resident = std::max(homes.kv.first_kept(), oldest);
  // A tile of all resident keys, or of those before the chunk's own.
  const std::int64_t end = resident < chunk && of_library(frame).diagonal ? chunk - 1 : chunk;
  const bool descending = strategy_.tiles.serpentine && chunk % 2 == 1;
  for (std::int64_t step = oldest; step <= chunk; ++step) {
    const std::int64_t j = descending ? chunk - (step - oldest) : step;
    if (strategy_.tiles.long_tiles && j >= resident) {
      if (j == (descending ? end : resident)) {
        emit(resident, end, homes.kv.kept_span(kept, resident, end));
      }
      if (j > end) emit(j, j, homes.kv.kept_span(kept, j, j));
      continue;
    }
    const bool fresh = made && j == chunk;
    if (fresh) homes.kv.used(kept, j, frame.kv[c]);
    const Operand kv = fresh ? frame.kv[c] : travel_.keys(frame, hop, j);
    if (j == chunk) travel_.pass(frame, hop, j, kv);
    emit(j, j, kv);
  }
  if (is_last(frame, hop)) return sink(frame, chunk);
  homes.attention_sum.spill(builder_, Version::plus(hop), chunk, o, out_lane());
  homes.lse_sum.spill(builder_, Version::plus(hop), chunk, lse, out_lane());
}

template <class Sink>
void Attention::describe_sink(Sink& op, const LayerFrame& frame, std::int64_t chunk) const {
  op.sinks = states_.weight_rows(kSinks, frame.weights, 0, part_.heads);
  op.q_first = query_first(chunk);
  op.q_rows = shape_.query_rows(chunk);
  op.heads = shape_.heads;
  op.all_heads = part_.heads;
  op.head_first = head_first();
}

void Attention::sink(const LayerFrame& frame, std::int64_t chunk) {
  if (!model_.sinks) return;
  AttentionSink op;
  describe_sink(op, frame, chunk);
  op.o = {frame.o[index(chunk)], true};
  op.lse = {frame.lse[index(chunk)], true};
  op.head_dim = model_.head_dim;
  op.pass = frame.visit == Visit::forward ? Pass::forward : Pass::recompute;
  builder_.emit(builder_.name("sink.{}", chunk), LaneKind::compute, op);
}

void Attention::sink_gradient(const LayerFrame& frame, std::int64_t chunk, const Operand& lse,
                              const Operand& delta) {
  if (!model_.sinks) return;
  AttentionSinkGradient op;
  describe_sink(op, frame, chunk);
  op.lse = lse;
  op.delta = delta;
  op.dsinks = states_.gradient_rows(kSinks, Version::plus(0), 0, part_.heads);
  op.local_first = shape_.local_first(chunk) * shape_.tensor_ranks;
  builder_.emit(builder_.name("dsinks.{}", chunk), LaneKind::compute, op);
}

Operand Attention::lse_sum(LayerFrame& frame, std::int64_t hop, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  const Continued before = Continued::after(hop);
  const std::int64_t rows = shape_.query_rows(chunk);
  if (!is_last(frame, hop)) return streamed_sum(homes.lse_sum, before, chunk, {}, rows);
  const Operand lse = homes.lse.produce(builder_, outputs(frame), chunk);
  if (hop == 0) return lse;
  if (chunk < homes.lse_sum.first_kept()) {
    homes.lse_sum.fetch_into(builder_, *before.last, chunk, lse, LaneKind::h2d);
  } else {
    const Operand sum = streamed_sum(homes.lse_sum, before, chunk, {}, rows);
    builder_.emit(builder_.name("lse.{}", chunk), LaneKind::compute, Copy{sum, {lse, false}});
  }
  return lse;
}

Operand Attention::streamed_sum(Home& home, const Continued& from, std::int64_t chunk,
                                std::optional<BufferId> complete, std::int64_t rows) {
  if (chunk >= home.first_kept()) {
    return home.fetch(builder_, from.kept, chunk, Home::Reuse::none, LaneKind::h2d);
  }
  if (complete) {
    const Operand sum = temporary(*complete, rows);
    if (from.last) home.fetch_into(builder_, *from.last, chunk, sum, LaneKind::h2d);
    return sum;
  }
  if (!from.last) return home.produce(builder_, from.kept, chunk);
  return home.fetch(builder_, *from.last, chunk, Home::Reuse::none, LaneKind::h2d);
}

// With Reuse::latest, the query side of a row's last tile serves the first tile of the next row.
Attention::RowGradient Attention::kv_row(LayerFrame& frame, std::int64_t hop, std::int64_t i) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks, end = last_to_see(frame, i);
  const std::int64_t before = (frame.hops - 1 - hop) * chunks;  // rows of the hops before
  const Operand kv = travel_.keys(frame, hop, i);
  travel_.pass(frame, hop, i, kv);
  const Operand dkv = temporary(dkv_sum_, key_rows(frame, i, hop));
  Operand complete;
  bool first = true;
  for (std::int64_t step = i; step <= end; ++step) {
    const std::int64_t j = strategy_.tiles.serpentine && i % 2 == 1 ? end - (step - i) : step;
    const bool last = hop == 0 && j == i;
    const bool begins = i == first_seen(frame, j);  // the sum of this hop
    Continued from{Version::plus(0), {}};
    if (!begins) from.last = Version::plus(before + i - 1);
    if (begins && before > 0) from.last = Version::plus(before - chunks + j);
    const Operand dq = streamed_sum(
        homes.dq, from, j, last ? std::optional(dq_diagonal_) : std::nullopt, shape_.query_rows(j));
    backward_tile(frame, {hop, j, i, i}, kv, {dq, from.last.has_value()}, {dkv, !first});
    if (!last) spill_after_fetches({&homes.dq, Version::plus(before + i), j, dq});
    if (last) complete = dq;
    first = false;
  }
  emit_waiting_spill();  // the next row may begin with this chunk
  if (frame.hops > 1) travel_.pass_gradient(frame, hop, i, dkv);
  return {complete, dkv};
}

Attention::RowGradient Attention::query_row(LayerFrame& frame, std::int64_t hop, std::int64_t i) {
  Homes& homes = *frame.homes;
  const std::int64_t chunks = shape_.chunks;
  const std::int64_t turn = chunks - 1 - i;
  const std::int64_t hops_before = frame.hops - 1 - hop;
  const std::int64_t before = hops_before * chunks;
  const Instance kept = inputs(frame);
  const std::int64_t oldest = first_seen(frame, i);
  const std::int64_t resident =
      strategy_.tiles.long_tiles ? std::max({homes.kv.first_kept(), homes.dkv.first_kept(), oldest})
                                 : chunks;
  const std::int64_t rows = shape_.query_rows(i);
  const bool descending = strategy_.tiles.serpentine && turn % 2 == 1;
  const Operand dq = shape_.hops == 1
                         ? temporary(dq_sum_, rows)
                         : streamed_sum(homes.dq, Continued::after(hops_before), i,
                                        hop == 0 ? std::optional(dq_sum_) : std::nullopt, rows);
  Operand complete;
  bool first = hops_before == 0;
  const auto emit_span = [&](std::int64_t from, std::int64_t to) {
    const bool begins = i == last_to_see(frame, from);  // the sums
    backward_tile(frame, {hop, i, from, to}, homes.kv.kept_span(kept, from, to), {dq, !first},
                  {homes.dkv.kept_span(Version::plus(0), from, to), !begins});
    first = false;
  };
  for (std::int64_t step = oldest; step <= i; ++step) {
    const std::int64_t j = descending ? i - (step - oldest) : step;
    if (j >= resident) {
      if (j != (descending ? i : resident)) continue;
      // The oldest chunk of a window meets its first queries, and the others have met some.
      const bool begins = turn > 0 && i == last_to_see(frame, resident);
      const bool apart = resident < i && (begins || of_library(frame).diagonal);
      if (apart) emit_span(resident, resident);
      emit_span(resident + (apart ? 1 : 0), i);
      complete = homes.dkv.kept_span(Version::plus(0), i, i);
      continue;
    }
    const bool diagonal = j == i;
    const bool begins = i == last_to_see(frame, j);  // the sum of this hop
    const Operand kv = travel_.keys(frame, hop, j);
    if (begins) travel_.pass(frame, hop, j, kv);
    Continued of_dkv{Version::plus(before), {}};
    if (!begins) of_dkv.last = Version::plus(before + turn - 1);
    const Operand dkv = streamed_sum(dkv_home(frame, hop), of_dkv, j,
                                     diagonal ? std::optional(dkv_diagonal_) : std::nullopt,
                                     key_rows(frame, j, hop));
    backward_tile(frame, {hop, i, j, j}, kv, {dq, !first}, {dkv, !begins});
    if (!diagonal) {
      spill_after_fetches({&dkv_home(frame, hop), Version::plus(before + turn), j, dkv});
    }
    if (diagonal) complete = dkv;
    first = false;
  }
  emit_waiting_spill();
  if (hop > 0) homes.dq.spill(builder_, Version::plus(hops_before), i, dq, out_lane());
  if (frame.hops > 1) travel_.pass_gradient(frame, hop, i, complete);
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

void Attention::backward_tile(LayerFrame& frame, const Place& place, const Operand& kv,
                              const Target& dq, const Target& dkv) {
  Homes& homes = *frame.homes;
  // Both loop orders return to the query chunk that they used last.
  const Home::Reuse mode = reuse();
  AttentionBackward tile;
  tile.q = homes.q.fetch(builder_, inputs(frame), place.q_chunk, mode, LaneKind::h2d);
  tile.kv = kv;
  tile.dout = homes.dout.fetch(builder_, Version::plus(0), place.q_chunk, mode, LaneKind::h2d);
  tile.lse = homes.lse.fetch(builder_, outputs(frame), place.q_chunk, mode, LaneKind::h2d);
  tile.delta = homes.delta.fetch(builder_, Version::plus(0), place.q_chunk, mode, LaneKind::h2d);
  tile.dq = dq;
  tile.dkv = dkv;
  tile.workspace = workspace(frame, place);
  describe_tile(tile, frame, place);
  emit_waiting_spill();
  builder_.emit(place.name(builder_, "dattn"), LaneKind::compute, tile);
  // Once for each chunk of queries.
  if (place.hop == 0 && place.k_last == place.q_chunk) {
    sink_gradient(frame, place.q_chunk, tile.lse, tile.delta);
  }
}

}  // namespace fpdt
