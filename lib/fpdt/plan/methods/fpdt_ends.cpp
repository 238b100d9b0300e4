// The two ends of the model: embedding, and final norm with the loss, both chunk by chunk.
//
// The loss never holds logits of more than one tile of rows by vocabulary: statistics of all vocabulary tiles
// first (as in online softmax), then the gradient tile by tile; a single tile keeps its logits for that.
#include <fmt/format.h>

#include <algorithm>

#include "fpdt/plan/methods/fpdt_lowering.h"

namespace fpdt {
namespace {

// Gathers of global tensors and sums of their gradients are numbered by micro-batch.
const Version kMicroBatch = Version::at(0, 0, 1);

}  // namespace

void FpdtLowering::emit_embed() {
  begin_block("embed");
  const Instance first = fpdt_.checkpoint_every == 1
                             ? Version::at(0, 0, model_.layers + 1)
                             : Version::at(0, 0, model_.layers / fpdt_.checkpoint_every + 1);
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    const Operand x = layer_input_.produce(builder_, first, i);
    Embedding embed;
    embed.tokens = {tokens_, kMicroBatch, local_first(i), shape_.local_rows(i)};
    embed.table = states_.weight("embed.weight", kMicroBatch);
    embed.positions = optional_weight("positions.weight", kMicroBatch);
    if (embed.positions.present()) embed.documents = documents();
    embed.x = {x, false};
    embed.rows = shape_.local_rows(i);
    embed.width = model_.hidden;
    embed.token_first = token_first(i);
    builder_.emit(fmt::format("embed.{}", i), LaneKind::compute, embed);
    layer_input_.stash(builder_, first, i, x, out_lane());
  }
  builder_.end_block();
}

void FpdtLowering::emit_embed_backward() {
  begin_block("embed_backward");
  std::vector<std::string> names{"embed.weight"};
  if (states_.has("positions.weight")) names.push_back("positions.weight");
  // A tied head has already begun the sum of embed.weight.
  std::vector<std::string> fresh = names;
  if (model_.tied_embeddings) fresh.erase(fresh.begin());
  states_.emit_fill(builder_, fresh, kMicroBatch);
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    EmbeddingBackward back;
    back.tokens = {tokens_, kMicroBatch, local_first(i), shape_.local_rows(i)};
    back.dx = layer_gradient_.fetch(builder_, Version::plus(0), i, Home::Reuse::latest, LaneKind::h2d);
    back.dtable = states_.gradient_rows("embed.weight", kMicroBatch, 0,
                                        model_.vocabulary * model_.hidden);
    if (states_.has("positions.weight")) {
      back.documents = documents();
      back.dpositions = states_.gradient_rows("positions.weight", kMicroBatch, 0,
                                              model_.learned_positions * model_.hidden);
    }
    back.rows = shape_.local_rows(i);
    back.width = model_.hidden;
    back.token_first = token_first(i);
    back.local_first = local_first(i);
    builder_.emit(fmt::format("dembed.{}", i), LaneKind::compute, back);
  }
  states_.emit_reduce(builder_, names, kMicroBatch, "reduce_embed");
  builder_.end_block();
}

void FpdtLowering::emit_head(const std::string& name, bool train) {
  begin_block(name);
  std::vector<std::string> names{"final_norm.weight"};
  if (states_.has("final_norm.bias")) names.push_back("final_norm.bias");
  names.push_back(model_.tied_embeddings ? "embed.weight" : "head.weight");
  if (train) states_.emit_fill(builder_, names, kMicroBatch);
  const std::int64_t checkpoints = model_.layers / fpdt_.checkpoint_every;
  const Instance last = Version::at(checkpoints, 0, checkpoints + 1);
  const std::int64_t most = shape_.local_rows(0);
  const std::int64_t tile = fpdt_.loss_tile_rows > 0 ? std::min(fpdt_.loss_tile_rows, most) : most;
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    const Operand x = layer_input_.fetch(builder_, last, i, Home::Reuse::latest, LaneKind::h2d);
    const Operand dx = train ? layer_gradient_.produce(builder_, Version::plus(1), i) : Operand{};
    for (std::int64_t at = 0; at < shape_.local_rows(i); at += tile) {
      const std::int64_t rows = std::min(tile, shape_.local_rows(i) - at);
      const Target into{train ? rows_of(dx, at, rows) : Operand{}, false};
      loss_rows(i, at, rows, rows_of(x, at, rows), into, train);
    }
    if (train) layer_gradient_.stash(builder_, Version::plus(1), i, dx, out_lane());
  }
  if (train) {
    layer_gradient_.advance(builder_, 1);
    if (model_.tied_embeddings) names.pop_back();
    states_.emit_reduce(builder_, names, kMicroBatch, "reduce_head");
  }
  builder_.end_block();
}

// One tile of rows: loss, and the gradient of x.
void FpdtLowering::loss_rows(std::int64_t chunk, std::int64_t first, std::int64_t rows, const Operand& x,
                             const Target& dx, bool train) {
  const std::int64_t most = shape_.local_rows(0);
  const std::int64_t tile = fpdt_.loss_tile_rows > 0 ? std::min(fpdt_.loss_tile_rows, most) : most;
  const std::int64_t words = model_.vocabulary;
  const std::int64_t wide = fpdt_.loss_tile_vocab > 0 ? std::min(fpdt_.loss_tile_vocab, words) : words;
  const std::int64_t hidden = model_.hidden;
  const std::string weight = model_.tied_embeddings ? "embed.weight" : "head.weight";
  const std::int64_t token = local_first(chunk) + first;
  const Operand labels{labels_, kMicroBatch, token, rows};
  const auto name = [&](const char* what, std::int64_t word = -1) {
    return word < 0 ? fmt::format("{}.{}.{}", what, chunk, first)
                    : fmt::format("{}.{}.{}.{}", what, chunk, first, word);
  };
  const Operand normed = temporary("head_norm", rows, tile, {hidden}, storage_);
  const Operand norm_weight = states_.weight("final_norm.weight", kMicroBatch);
  builder_.emit(name("norm"), LaneKind::compute,
                Norm{x, norm_weight, optional_weight("final_norm.bias", kMicroBatch), {normed, false},
                     norm_kind(), model_.norm_epsilon, rows, hidden});
  Operand logits;
  const auto emit_logits = [&](const char* what, std::int64_t word) {
    const std::int64_t count = std::min(wide, words - word);
    // The tile is dense: its last, narrower column block uses the first elements of the slot.
    logits = temporary("logits", rows * count, tile * wide, {}, Dtype::f32);
    Matmul product{normed, states_.weight_rows(weight, kMicroBatch, word * hidden, count * hidden), {},
                   {}, {logits, false}};
    product.m = rows;
    product.n = count;
    product.k = hidden;
    product.transpose_b = true;
    builder_.emit(name(what, word), LaneKind::compute, product);
    return count;
  };
  const Operand statistics = temporary("statistics", rows, tile, {3}, Dtype::f32);
  for (std::int64_t word = 0; word < words; word += wide) {
    const std::int64_t count = emit_logits("logits", word);
    builder_.emit(name("statistics", word), LaneKind::compute,
                  LossStatistics{logits, labels, {statistics, word > 0}, rows, word, count});
  }
  builder_.emit(name("loss"), LaneKind::compute,
                LossSum{statistics, labels, states_.loss_scale(), states_.loss(), rows});
  if (!train) return;
  const Operand dnormed = temporary("head_norm_gradient", rows, tile, {hidden}, Dtype::f32);
  for (std::int64_t word = 0; word < words; word += wide) {
    const std::int64_t count = wide < words ? emit_logits("relogits", word) : words;
    const Operand dlogits = temporary("logits_gradient", rows * count, tile * wide, {}, storage_);
    builder_.emit(name("dlogits", word), LaneKind::compute,
                  LossGradient{logits, labels, statistics, states_.loss_scale(), {dlogits, false}, rows,
                               word, count});
    Matmul back{dlogits, states_.weight_rows(weight, kMicroBatch, word * hidden, count * hidden), {}, {},
                {dnormed, word > 0}};
    back.m = rows;
    back.n = hidden;
    back.k = count;
    builder_.emit(name("dnorm", word), LaneKind::compute, back);
    Matmul update{dlogits, normed, {}, {},
                  states_.gradient_rows(weight, kMicroBatch, word * hidden, count * hidden)};
    update.m = count;
    update.n = hidden;
    update.k = rows;
    update.transpose_a = true;
    update.token_first = token;
    builder_.emit(name("dw_head", word), LaneKind::compute, update);
  }
  NormBackward norm{x, norm_weight, dnormed, {}, dx, {}, {}};
  norm.dweight = states_.gradient_rows("final_norm.weight", kMicroBatch, 0, hidden);
  if (states_.has("final_norm.bias")) {
    norm.dbias = states_.gradient_rows("final_norm.bias", kMicroBatch, 0, hidden);
  }
  norm.kind = norm_kind();
  norm.epsilon = model_.norm_epsilon;
  norm.rows = rows;
  norm.width = hidden;
  norm.token_first = token;
  builder_.emit(name("dx"), LaneKind::compute, norm);
}

}  // namespace fpdt
