// The two ends of the model: embedding, and final norm with the loss, both chunk by chunk.
//
// The loss never holds logits of more than one tile of rows by vocabulary: statistics of all
// vocabulary tiles first (as in online softmax), then the gradient tile by tile; a single tile
// keeps its logits for that.
#include "fpdt/plan/lowering/ends.h"

#include <algorithm>

#include "fpdt/base/math.h"

namespace fpdt {

// The loss holds one tile of logits in f32 and its gradient in storage type (14 bytes a logit
// without tiles).
Ends::Ends(Context& context) : LoweringPart(context), products_(context) {
  const auto logits = [&](const char* name, Dtype dtype) {
    return builder_.declare({name,
                             MemorySpace::device,
                             Role::temporary,
                             Category::activations,
                             dtype,
                             {mul(loss_tile(), words())},
                             1,
                             kUnplaced});
  };
  normed_ = rows_of_width("head_norm", loss_tile(), model_.hidden, storage_);
  logits_ = logits("logits", Dtype::f32);
  statistics_ = rows_of_width("statistics", loss_tile(), 3, Dtype::f32);
  normed_gradient_ = rows_of_width("head_norm_gradient", loss_tile(), model_.hidden, Dtype::f32);
  logits_gradient_ = logits("logits_gradient", storage_);
}

std::int64_t Ends::loss_tile() const {
  const std::int64_t most = shape_.local_rows(0);
  return strategy_.tiles.loss_rows > 0 ? std::min(strategy_.tiles.loss_rows, most) : most;
}

std::int64_t Ends::words() const {
  return strategy_.tiles.loss_vocabulary > 0
             ? std::min(strategy_.tiles.loss_vocabulary, model_.vocabulary)
             : model_.vocabulary;
}

void Ends::emit_embed() {
  context_.begin_block("embed");
  if (states_.balances()) states_.emit_clear_loads(builder_);
  const auto [home, first] = context_.first_input();
  Operand x;
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    const std::int64_t extent = shape_.extent_of(i);
    if (enters(i, Loop::up)) x = home->produce(builder_, first, extent);
    Embedding embed;
    embed.tokens = {context_.tokens, kMicroBatch, shape_.local_first(i), shape_.local_rows(i)};
    embed.table = states_.weight("embed.weight", kMicroBatch);
    embed.positions = optional_weight("positions.weight", kMicroBatch);
    if (embed.positions.present()) embed.documents = documents();
    embed.x = {chunk_of(x, i), false};
    embed.rows = shape_.local_rows(i);
    embed.width = model_.hidden;
    embed.vocabulary = model_.vocabulary;
    embed.position_count = model_.learned_positions;
    embed.token_first = token_first(i);
    embed.scale = model_.embedding_scale;
    builder_.emit(builder_.name("embed.{}", i), LaneKind::compute, embed);
    if (leaves(i, Loop::up)) {
      home->spill(builder_, first, extent, x, out_lane());
    }
  }
  builder_.end_block();
}

void Ends::emit_embed_backward() {
  context_.begin_block("embed_backward");
  std::vector<std::string> names{"embed.weight"};
  if (states_.has("positions.weight")) names.push_back("positions.weight");
  // A tied head has already begun the gradient sum of embed.weight.
  std::vector<std::string> fresh = names;
  if (model_.tied_embeddings) fresh.erase(fresh.begin());
  states_.emit_fill(builder_, fresh, kMicroBatch);
  const auto [home, gradient] = context_.first_gradient();
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    EmbeddingBackward back;
    back.tokens = {context_.tokens, kMicroBatch, shape_.local_first(i), shape_.local_rows(i)};
    const Operand dx =
        home->fetch(builder_, gradient, shape_.extent_of(i), Home::Reuse::latest, LaneKind::h2d);
    back.dx = chunk_of(dx, i);
    back.dtable =
        states_.gradient_rows("embed.weight", kMicroBatch, 0, model_.vocabulary * model_.hidden);
    if (states_.has("positions.weight")) {
      back.documents = documents();
      back.dpositions = states_.gradient_rows("positions.weight", kMicroBatch, 0,
                                              model_.learned_positions * model_.hidden);
    }
    back.rows = shape_.local_rows(i);
    back.width = model_.hidden;
    back.vocabulary = model_.vocabulary;
    back.position_count = model_.learned_positions;
    back.token_first = token_first(i);
    back.scale = model_.embedding_scale;
    back.local_first = shape_.local_first(i);
    builder_.emit(builder_.name("dembed.{}", i), LaneKind::compute, back);
  }
  states_.emit_reduce(builder_, names, kMicroBatch, "reduce_embed");
  builder_.end_block();
}

void Ends::emit_head(const std::string& name, bool train) {
  context_.begin_block(name);
  std::vector<std::string> names{"final_norm.weight"};
  if (states_.has("final_norm.bias")) names.push_back("final_norm.bias");
  names.push_back(model_.tied_embeddings ? "embed.weight" : "head.weight");
  if (train) states_.emit_fill(builder_, names, kMicroBatch);
  if (train && states_.balances()) states_.emit_balance(builder_);
  const auto [home, last] = context_.head_input();
  const auto [gradients, gradient] = context_.head_gradient();
  const std::int64_t tile = loss_tile();
  // Of long sequences, most ops are here. An op is a kilobyte, so let none move.
  const std::int64_t tiles = shape_.extents * div_ceil(shape_.extent_rows(0), tile);
  builder_.expect(tiles * (4 + (train ? 6 : 2) * div_ceil(model_.vocabulary, words())));
  for (std::int64_t i = 0; i < shape_.extents; ++i) {
    const Operand x = home->fetch(builder_, last, i, Home::Reuse::latest, LaneKind::h2d);
    const Operand dx = train ? gradients->produce(builder_, gradient, i) : Operand{};
    for (std::int64_t at = 0; at < shape_.extent_rows(i); at += tile) {
      const std::int64_t rows = std::min(tile, shape_.extent_rows(i) - at);
      loss_rows(i, at, rows, rows_of(x, at, rows), train ? rows_of(dx, at, rows) : Operand{},
                train);
    }
    if (train) gradients->spill(builder_, gradient, i, dx, out_lane());
  }
  if (train) {
    context_.advance_gradient();
    if (model_.tied_embeddings) names.pop_back();
    states_.emit_reduce(builder_, names, kMicroBatch, "reduce_head");
  }
  builder_.end_block();
}

// One tile of rows: the loss, and the gradient of x.
void Ends::loss_rows(std::int64_t extent, std::int64_t first, std::int64_t rows, const Operand& x,
                     const Operand& dx, bool train) {
  LossTile tile;
  tile.extent = extent;
  tile.first = first;
  tile.rows = rows;
  tile.wide = words();
  tile.weight = model_.tied_embeddings ? "embed.weight" : "head.weight";
  tile.x = x;
  tile.labels = {context_.labels, kMicroBatch, extent_first(extent) + first, rows};
  tile.normed = temporary(normed_, rows);
  products_.norm(tile.name(builder_, "norm"), "final_norm", kMicroBatch, x, tile.normed, rows);
  tile.statistics = temporary(statistics_, rows);
  for (std::int64_t word = 0; word < model_.vocabulary; word += tile.wide) {
    const std::int64_t count = emit_logits(tile, "logits", word);
    builder_.emit(tile.name(builder_, "statistics", word), LaneKind::compute,
                  LossStatistics{tile.logits,
                                 tile.labels,
                                 {tile.statistics, word > 0},
                                 rows,
                                 word,
                                 count,
                                 model_.logits_cap});
  }
  builder_.emit(tile.name(builder_, "loss"), LaneKind::compute,
                LossSum{tile.statistics, tile.labels, states_.loss_scale(), states_.loss(), rows});
  if (train) loss_gradient(tile, dx);
}

// Emits the logits of one tile of words; returns how many words it has. The tile is dense: the
// last, narrower one uses the first elements of the slot.
std::int64_t Ends::emit_logits(LossTile& tile, const char* name, std::int64_t word) {
  const std::int64_t count = std::min(tile.wide, model_.vocabulary - word);
  tile.logits = temporary(logits_, tile.rows * count);
  Matmul product{
      tile.normed,
      states_.weight_rows(tile.weight, kMicroBatch, word * model_.hidden, count * model_.hidden),
      {},
      {},
      {tile.logits, false}};
  product.m = tile.rows;
  product.n = count;
  product.k = model_.hidden;
  product.transpose_b = true;
  builder_.emit(tile.name(builder_, name, word), LaneKind::compute, product);
  return count;
}

void Ends::loss_gradient(LossTile& tile, const Operand& dx) {
  const std::int64_t hidden = model_.hidden;
  const std::int64_t words = model_.vocabulary;
  const Operand dnormed = temporary(normed_gradient_, tile.rows);
  for (std::int64_t word = 0; word < words; word += tile.wide) {
    const std::int64_t count = tile.wide < words ? emit_logits(tile, "relogits", word) : words;
    const Operand dlogits = temporary(logits_gradient_, tile.rows * count);
    builder_.emit(tile.name(builder_, "dlogits", word), LaneKind::compute,
                  LossGradient{tile.logits,
                               tile.labels,
                               tile.statistics,
                               states_.loss_scale(),
                               {dlogits, false},
                               tile.rows,
                               word,
                               count,
                               model_.logits_cap});
    Matmul back{dlogits,
                states_.weight_rows(tile.weight, kMicroBatch, word * hidden, count * hidden),
                {},
                {},
                {dnormed, word > 0}};
    back.m = tile.rows;
    back.n = hidden;
    back.k = count;
    builder_.emit(tile.name(builder_, "dnorm", word), LaneKind::compute, back);
    Matmul update{dlogits,
                  tile.normed,
                  {},
                  {},
                  states_.gradient_rows(tile.weight, kMicroBatch, word * hidden, count * hidden)};
    update.m = count;
    update.n = hidden;
    update.k = tile.rows;
    update.transpose_a = true;
    update.local_first = extent_first(tile.extent) + tile.first;
    builder_.emit(tile.name(builder_, "dw_head", word), LaneKind::compute, update);
  }
  products_.norm_backward(tile.name(builder_, "dx"),
                          {.layer = "final_norm",
                           .use = kMicroBatch,
                           .sum = kMicroBatch,
                           .x = tile.x,
                           .dy = dnormed,
                           .addend = {},
                           .dx = dx,
                           .rows = tile.rows,
                           .local_first = extent_first(tile.extent) + tile.first});
}

std::string Ends::LossTile::name(const Builder& builder, const char* what,
                                 std::int64_t word) const {
  return word < 0 ? builder.name("{}.{}.{}", what, extent, first)
                  : builder.name("{}.{}.{}.{}", what, extent, first, word);
}

}  // namespace fpdt
