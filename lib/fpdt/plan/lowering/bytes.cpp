// FPDT's bytes in closed form. Units: one rank; e bytes of storage; l = c/P rows of a chunk on one
// rank, n = c rows after the all-to-all, C chunks, h = H/P and g = max(1, G/P) heads.
//
// Per chunk (the counts of Yao et al., arXiv 2408.16978): hidden tensors l*E*e; q, o, dO and dq
// n*h*D each; KV and dKV n*2g*D; lse and delta n*h*4. A tensor class that keeps k of C chunks costs
// k device chunks a live instance. The others cost C-k host chunks an instance, two device chunks
// where they are produced and 1 + depth where they are fetched. Every slot is rounded up to
// kAlignment.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/plan/lowering/formula.h"

namespace fpdt {
namespace {

// Arenas are mapped in whole pages of the operating system.
constexpr std::int64_t kPageBytes = 4096;

}  // namespace

BlockBytes BytesFormula::by_block() const {
  BlockBytes bytes;
  for (const auto& [block, lines] : blocks_) {
    for (const std::size_t i : lines) {
      const Line& line = lines_[i];
      bytes[{block, line.space, line.category}] += line.bytes;
    }
  }
  return bytes;
}

void BytesFormula::add(const std::string& block, const std::string& name, MemorySpace space,
                       Category category, std::int64_t slots, std::int64_t slot_bytes,
                       bool lasting) {
  if (slots <= 0 || slot_bytes <= 0) return;
  const auto [at, fresh] = line_of_.try_emplace(name, lines_.size());
  if (fresh) lines_.emplace_back();
  lines_[at->second] = {space, category, Bytes{mul(slots, round_up(slot_bytes, kAlignment))},
                        lasting};
  if (blocks_.empty() || blocks_.back().first != block) {
    const auto known = std::find_if(blocks_.begin(), blocks_.end(),
                                    [&](const auto& one) { return one.first == block; });
    if (known == blocks_.end()) {
      blocks_.emplace_back(block, std::vector<std::size_t>{});
    } else {
      std::rotate(known, known + 1, blocks_.end());
    }
  }
  std::vector<std::size_t>& lines = blocks_.back().second;
  if (std::find(lines.begin(), lines.end(), at->second) == lines.end()) {
    lines.push_back(at->second);
  }
}

Prediction BytesFormula::predict() const {
  // Blocks whose ops can be in flight together. One layer block stands for all blocks of its kind.
  struct Neighbourhood {
    std::string_view phase;
    std::vector<std::string_view> kinds;
  };
  std::vector<Neighbourhood> neighbourhoods{
      {"forward", {"begin", "tokens", "gather_embed", "embed", "gather", "forward"}},
      {"loss", {"gather", "forward", "gather_head", "head"}},
      {"loss and backward",
       {"gather_head", "head", "gather_backward", "gather_rerun", "rerun", "backward"}},
      {"backward", {"backward", "embed_backward", "grad_norm"}},
      {"optimizer", {"embed_backward", "grad_norm", "optimizer", "finish"}}};
  if (strategy_.micro_batches > 1) {
    neighbourhoods.push_back(
        {"backward", {"backward", "embed_backward", "tokens", "gather_embed", "embed", "gather"}});
    neighbourhoods.push_back(
        {"forward", {"embed_backward", "tokens", "gather_embed", "embed", "gather", "forward"}});
  }
  // "forward" stands for forward_0, forward_first, ..., but "gather" not for gather_embed.
  const auto kind = [](const std::string& block, std::string_view word) {
    if (!block.starts_with(word)) return false;
    const std::string_view rest = std::string_view(block).substr(word.size());
    constexpr std::array<std::string_view, 7> places{"",      "_first", "_middle",  "_inside",
                                                     "_last", "_layer", "_evaluate"};
    return std::find(places.begin(), places.end(), rest) != places.end() ||
           (rest.size() == 2 && rest[0] == '_' && rest[1] >= '0' && rest[1] <= '9');
  };
  std::array<Bytes, 3> lasting{};
  for (const Line& line : lines_) {
    if (line.lasting) lasting[static_cast<std::size_t>(line.space)] += line.bytes;
  }
  std::array<Bytes, 3> peak{};
  std::string_view phase;
  for (const Neighbourhood& place : neighbourhoods) {
    std::array<Bytes, 3> sum = lasting;
    std::vector<bool> counted(lines_.size(), false);
    for (const auto& [block, lines] : blocks_) {
      const bool here = std::any_of(place.kinds.begin(), place.kinds.end(),
                                    [&](std::string_view word) { return kind(block, word); });
      if (!here) continue;
      for (const std::size_t i : lines) {
        if (counted[i] || lines_[i].lasting) continue;
        counted[i] = true;
        sum[static_cast<std::size_t>(lines_[i].space)] += lines_[i].bytes;
      }
    }
    if (sum[0] > peak[0]) phase = place.phase;
    for (std::size_t i = 0; i < sum.size(); ++i) peak[i] = std::max(peak[i], sum[i]);
  }
  // Arenas are whole pages.
  for (Bytes& bytes : peak) bytes.value = round_up(bytes.value, kPageBytes);
  return {peak[0], peak[1], peak[2], phase};
}

void BytesFormula::states() {
  const std::vector<Tensor> layers = layer_list();
  const std::vector<Tensor> global = globals({});
  const bool several = world_ > 1;
  for (const char* block : {"begin", "begin_evaluate"}) {
    host_scalar(block, "step_input", 4);
    scalar(block, "step", 4);
    scalar(block, "loss", 1);
  }
  scalar("begin", "grad_norm", 1);
  shard_gradient("begin", global);
  shard_gradient("begin_layer", layers);
  shard_gradient("grad_norm_layer", layers);
  scalar("grad_norm_layer", "grad_norm", 1);
  shard_gradient("grad_norm", global);
  scalar("grad_norm", "grad_norm", 1);
  if (several) {
    scalar("grad_norm", "grad_norm_total", 1);
    sum_workspace("grad_norm");
  }
  optimizer("optimizer_layer", layers);
  optimizer("optimizer", global);
  for (const char* block : {"finish", "finish_evaluate"}) {
    scalar(block, "loss", 1);
    if (several) {
      scalar(block, "loss_total", 1);
      sum_workspace(block);
    }
    host_scalar(block, "loss_output", 1);
  }
  scalar("finish", several ? "grad_norm_total" : "grad_norm", 1);
  host_scalar("finish", "grad_norm_output", 1);
  if (!several) return;
  const auto gather = [&](const char* block, const std::vector<Tensor>& list, std::int64_t slots) {
    shard(block, list);
    weights(block, list, slots);
  };
  gather("gather", layers, 2);
  gather("gather_backward", layers, 2);
  if (strategy_.checkpoint_every() > 1) gather("gather_rerun", layers, 2);
  gather("gather_embed", globals({"embed.weight", "positions.weight"}), 1);
  gather("gather_head", globals({"final_norm.weight", "final_norm.bias", "head.weight"}), 1);
}

void BytesFormula::optimizer(const std::string& block, const std::vector<Tensor>& list) {
  scalar(block, "step", 4);
  scalar(block, world_ > 1 ? "grad_norm_total" : "grad_norm", 1);
  shard(block, list);
  shard_gradient(block, list);
  const bool offload = strategy_.offloads_states();
  constexpr std::int64_t kTile = kAlignment / 4;
  for (const Tensor& tensor : list) {
    const std::int64_t tile =
        offload ? round_up(std::min(strategy_.copies.optimizer_tile, piece(tensor)), kTile)
                : piece(tensor);
    const std::int64_t slots = tensor.count * div_ceil(piece(tensor), tile);
    for (const char* kind : {"master.", "moment1.", "moment2."}) {
      if (std::string_view(kind) == "master." && !offload && element_ == 4) continue;
      add(block, kind + tensor.spec.name, offload ? MemorySpace::host_pinned : MemorySpace::device,
          Category::optimizer, slots, 4 * tile, true);
    }
  }
  if (!offload) return;
  for (const char* kind : {"stage_master", "stage_moment1", "stage_moment2"}) {
    // Only the copy lane limits the first fetches: they may run ahead of the whole step.
    add(block, kind, MemorySpace::device, Category::optimizer, 2,
        4 * round_up(std::min(strategy_.copies.optimizer_tile, longest_piece_), kTile), true);
  }
}

void BytesFormula::stream(const std::string& block, unsigned parts, bool checkpoint) {
  const std::int64_t every = strategy_.checkpoint_every();
  home(block,
       {checkpoint ? "layer_input" : "segment_input", hidden_chunk(),
        checkpoint ? model_.layers / every + 1 : every - 1,
        strategy_.layer_classes.front().kept(TensorClass::layer_input), 2, 0,
        1 + strategy_.copies.prefetch_depth + 2 * overlap_, checkpoint},
       parts);
}

void BytesFormula::layer_gradient(const std::string& block, unsigned parts) {
  home(block,
       {"layer_gradient", hidden_chunk(), 1,
        strategy_.layer_classes.front().kept(TensorClass::layer_gradient)},
       parts);
}

void BytesFormula::ends() {
  const auto tokens = [&](const char* block, const char* name, std::int64_t rows) {
    add(block, name, MemorySpace::device, Category::tokens, 1, 4 * rows, true);
  };
  const auto input = [&](const std::string& name, std::int64_t rows) {
    add("tokens", name + "_input", MemorySpace::host, Category::tokens, strategy_.micro_batches,
        4 * rows, true);
  };
  documents("tokens");
  if (problem_.documents) input("documents", shape_.padded_tokens);
  for (const char* name : {"tokens", "labels"}) {
    tokens("tokens", name, shape_.local_tokens());
    input(name, shape_.local_tokens());
  }
  const std::vector<Tensor> embed = globals({"embed.weight", "positions.weight"});
  for (const char* block : {"embed", "embed_backward"}) {
    tokens(block, "tokens", shape_.local_tokens());
    if (model_.learned_positions > 0) documents(block);
  }
  weights("embed", embed, 1);
  stream("embed", kKept | kNew | kHost, true);
  gradient_sums("embed_backward", embed, 1);
  layer_gradient("embed_backward", kKept | kHost | kFetched);
  head("head", true);
  head("head_evaluate", false);
}

// The loss holds one tile of logits in f32 and its gradient in storage type (14 bytes a logit
// without tiles).
void BytesFormula::head(const std::string& block, bool train) {
  std::vector<Tensor> used = globals({"final_norm.weight", "final_norm.bias",
                                      model_.tied_embeddings ? "embed.weight" : "head.weight"});
  const std::int64_t tile =
      strategy_.tiles.loss_rows > 0 ? std::min(strategy_.tiles.loss_rows, local_) : local_;
  const std::int64_t words = strategy_.tiles.loss_vocabulary > 0
                                 ? std::min(strategy_.tiles.loss_vocabulary, model_.vocabulary)
                                 : model_.vocabulary;
  weights(block, used, 1);
  add(block, "labels", MemorySpace::device, Category::tokens, 1, 4 * shape_.local_tokens(), true);
  scalar(block, "step", 4);
  scalar(block, "loss", 1);
  stream(block, kKept | kHost | kFetched, true);
  activation(block, "head_norm", 1, tile * model_.hidden * element_);
  activation(block, "logits", 1, 4 * tile * words);
  activation(block, "statistics", 1, 4 * tile * 3);
  if (!train) return;
  layer_gradient(block, kKept | kNew | kHost);
  activation(block, "logits_gradient", 1, tile * words * element_);
  activation(block, "head_norm_gradient", 1, 4 * tile * model_.hidden);
  // The gradient sum of a tied embedding is complete, and reduced, in embed_backward.
  if (world_ > 1 && model_.tied_embeddings) {
    whole_sums(block, globals({"embed.weight"}), 1);
    std::erase_if(used, [](const Tensor& tensor) { return tensor.spec.name == "embed.weight"; });
  }
  gradient_sums(block, used, 1);
}

BlockBytes closed_form(const Problem& problem, const Strategy& strategy) {
  BytesFormula formula(problem, strategy);
  formula.evaluate();
  return formula.by_block();
}

Prediction predict(const Problem& problem, const Strategy& strategy) {
  BytesFormula formula(problem, strategy);
  formula.evaluate();
  return formula.predict();
}

}  // namespace fpdt
