// One row for each setting: when it has no effect, and what stands for that.
#include "fpdt/spec/unused.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace fpdt {
namespace {

struct Setting {
  // Why it has no effect; empty if it has one, or is not set.
  std::string (*why)(const Problem& problem, const Strategy& strategy, const Geometry& shape);
  void (*reset)(Strategy& strategy);
};

bool keeps_keys(const Strategy& strategy) {
  return std::any_of(strategy.layer_classes.begin(), strategy.layer_classes.end(),
                     [](const LayerClass& one) { return one.kept(TensorClass::kv) > 0; });
}

std::string whole_tile(const char* name, std::int64_t rows, const Geometry& shape) {
  const std::int64_t most = shape.local_rows(0);
  if (rows < most) return "";
  return fmt::format("{}: a chunk has {} rows on one rank, so a tile is that", name, most);
}

std::string unused_long_tiles(const Problem&, const Strategy& strategy, const Geometry& shape) {
  if (!strategy.tiles.long_tiles) return "";
  if (shape.hops > 1) return "long_tiles has no effect with keys: ring";
  return keeps_keys(strategy) ? ""
                              : "long_tiles has no effect: no layer class keeps kv on the device";
}

std::string unused_words(const Problem& problem, const Strategy& strategy, const Geometry&) {
  const std::int64_t words = problem.model.vocabulary;
  if (strategy.tiles.loss_vocabulary < words) return "";
  return fmt::format("loss_vocabulary: the vocabulary has {} words, so a tile is that", words);
}

std::string unused_optimizer_tile(const Problem&, const Strategy& strategy, const Geometry&) {
  const bool set = strategy.copies.optimizer_tile != Copies{}.optimizer_tile;
  return set && !strategy.offloads_states()
             ? "optimizer_tile has no effect without keep: {states: host}"
             : "";
}

std::string unused_keys(const Problem&, const Strategy& strategy, const Geometry& shape) {
  if (strategy.keys == Keys::resident || shape.ring > 1) return "";
  return fmt::format("keys: {} has no effect with mesh.ring: 1", word(strategy.keys));
}

std::string unused_key_gradients(const Problem&, const Strategy& strategy, const Geometry& shape) {
  const bool travel = shape.hops > 1 && strategy.storage != Storage::f32;
  return strategy.key_gradients != Storage::f32 && !travel
             ? "key_gradients has no effect without keys: ring and storage: bf16"
             : "";
}

std::string unused_layout(const Problem&, const Strategy& strategy, const Geometry& shape) {
  return strategy.layout == Layout::zigzag && !shape.zigzag
             ? "layout: zigzag has no effect without a ring and several chunks"
             : "";
}

std::string unused_zero(const Problem& problem, const Strategy& strategy, const Geometry&) {
  return strategy.zero != Strategy{}.zero && problem.ranks() == 1
             ? "zero has no effect: one rank shares nothing"
             : "";
}

constexpr std::array<Setting, 9> kSettings{{
    {unused_long_tiles, [](Strategy& strategy) { strategy.tiles.long_tiles = false; }},
    {[](const Problem&, const Strategy& strategy, const Geometry& shape) {
       return whole_tile("ffn_rows", strategy.tiles.ffn_rows, shape);
     },
     [](Strategy& strategy) { strategy.tiles.ffn_rows = 0; }},
    {[](const Problem&, const Strategy& strategy, const Geometry& shape) {
       return whole_tile("loss_rows", strategy.tiles.loss_rows, shape);
     },
     [](Strategy& strategy) { strategy.tiles.loss_rows = 0; }},
    {unused_words, [](Strategy& strategy) { strategy.tiles.loss_vocabulary = 0; }},
    {unused_optimizer_tile,
     [](Strategy& strategy) { strategy.copies.optimizer_tile = Copies{}.optimizer_tile; }},
    {unused_keys, [](Strategy& strategy) { strategy.keys = Keys::resident; }},
    {unused_key_gradients, [](Strategy& strategy) { strategy.key_gradients = Storage::f32; }},
    {unused_layout, [](Strategy& strategy) { strategy.layout = Layout::interleaved; }},
    {unused_zero, [](Strategy& strategy) { strategy.zero = Strategy{}.zero; }},
}};

}  // namespace

std::vector<std::string> without_effect(const Problem& problem, const Strategy& strategy) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < strategy.layer_classes.size(); ++i) {
    const LayerClass& one = strategy.layer_classes[i];
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      const auto tensor = static_cast<TensorClass>(k);
      const std::string_view why = why_unused(strategy, one, tensor);
      if (one.kept(tensor) == 0 || why.empty()) continue;
      notes.push_back(
          fmt::format("layer_classes[{}].keep.{} has no effect: {}", i, word(tensor), why));
    }
  }
  const Geometry shape = geometry(problem, strategy);
  for (const Setting& setting : kSettings) {
    std::string why = setting.why(problem, strategy, shape);
    if (!why.empty()) notes.push_back(std::move(why));
  }
  return notes;
}

Strategy without_unused(const Problem& problem, Strategy strategy) {
  const Geometry shape = geometry(problem, strategy);
  for (LayerClass& one : strategy.layer_classes) {
    for (std::size_t k = 0; k < kTensorClasses; ++k) {
      if (!why_unused(strategy, one, static_cast<TensorClass>(k)).empty()) one.keep[k] = 0;
    }
  }
  for (const Setting& setting : kSettings) {
    if (!setting.why(problem, strategy, shape).empty()) setting.reset(strategy);
  }
  return strategy;
}

}  // namespace fpdt
