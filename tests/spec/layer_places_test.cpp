// Segments and classes side by side, and shapes of segments.
#include "fpdt/spec/layer_places.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/math.h"
#include "fpdt/spec/edits.h"

namespace fpdt {
namespace {

TEST(LayerPlaces, WalkSegmentsAndClasses) {
  Strategy strategy;
  strategy.segments = {3, 1};
  strategy.layer_classes.assign(2, LayerClass{});
  strategy.layer_classes.front().layers = 2;
  const std::vector<LayerPlace> places = layer_places(strategy, 5);
  ASSERT_EQ(places.size(), 5U);
  EXPECT_EQ(longest_segment(strategy), 3);
  EXPECT_EQ(segment_lengths(strategy, 5), (std::vector<std::int64_t>{3, 1, 1}));
  EXPECT_TRUE(places[0].first());
  EXPECT_EQ(places[1].layer_class, 0U);
  EXPECT_EQ(places[2].layer_class, 1U);
  EXPECT_EQ(places[2].place, 2);
  EXPECT_TRUE(places[2].last());
  EXPECT_EQ(places[4].segment, 2);
  EXPECT_TRUE(places[4].first() && places[4].last());
}

// "0.", a layer of class 0 and the first kind; "|1w", the first of a segment, of the second kind.
std::string in_words(const Strategy& strategy, const ModelSpec& model) {
  std::string words;
  std::int64_t layer = 0;
  for (const LayerPlace& at : layer_places(strategy, model.layers)) {
    words += fmt::format("{}{}{}", at.first() ? "|" : "", at.layer_class,
                         model.kind_at(layer++) == 0 ? "." : "w");
  }
  return words;
}

TEST(LayerPlaces, ShortenWhatRepeats) {
  Strategy strategy;
  strategy.segments = {8, 8, 8, 4, 1};
  strategy.layer_classes.assign(2, LayerClass{});
  strategy.layer_classes.front().layers = 20;
  ModelSpec model;
  model.layers = 32;
  shorten_layers(strategy, model);
  EXPECT_EQ(in_words(strategy, model), "|0.0.0.|0.0.1.1.1.|1.1.1.|1.|1.");
  Strategy alone;
  model = ModelSpec{};
  model.layers = 32;
  shorten_layers(alone, model);
  EXPECT_EQ(in_words(alone, model), "|0.|0.|0.");
}

// A model of one layer, or of two, has nothing to spare.
TEST(LayerPlaces, ShortenNothingOfFewLayers) {
  for (const std::int64_t layers : {1, 2, 3}) {
    for (const std::int64_t length : {1, 2, 3}) {
      Strategy strategy;
      strategy.segments = {length};
      ModelSpec model;
      model.layers = layers;
      const std::string whole = in_words(strategy, model);
      shorten_layers(strategy, model);
      EXPECT_EQ(in_words(strategy, model), whole);
    }
  }
}

TEST(LayerPlaces, ShortenPatternsThatRepeat) {
  Strategy strategy;
  ModelSpec model;
  model.layers = 62;
  model.kinds.resize(2);
  model.pattern = {0, 0, 0, 0, 0, 1};
  ModelSpec alone = model;
  shorten_layers(strategy, alone);
  EXPECT_EQ(in_words(strategy, alone), "|0.|0.|0.|0w|0.|0.");
  strategy.segments = {6};
  shorten_layers(strategy, model);
  EXPECT_EQ(in_words(strategy, model), "|0.0.0.0w|0.0.");
}

using Rows = std::set<std::vector<std::tuple<std::size_t, std::int64_t, bool>>>;

// All rows of so many layers, those at the end as well.
Rows rows_of(const Strategy& strategy, const ModelSpec& model, std::int64_t length) {
  std::vector<std::tuple<std::size_t, std::int64_t, bool>> layers;
  for (const LayerPlace& at : layer_places(strategy, model.layers)) {
    layers.emplace_back(at.layer_class, model.kind_at(std::ssize(layers)), at.first());
  }
  Rows rows;
  for (auto begin = layers.begin(); begin != layers.end(); ++begin) {
    std::vector row(begin, std::min(begin + length, layers.end()));
    std::get<bool>(row.front()) = true;
    rows.insert(row);
  }
  return rows;
}

TEST(LayerPlaces, ShortenToTheSameRows) {
  std::mt19937 random(1);
  const auto of = [&random](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random()) % (most - least + 1);
  };
  std::int64_t before = 0, after = 0;
  for (int i = 0; i < 2000; ++i) {
    Strategy strategy;
    ModelSpec model;
    model.layers = of(1, 60);
    model.kinds.resize(2);
    model.pattern.assign(index(of(1, 6)), 0);
    model.pattern.back() = of(0, 1);
    model.leading.assign(index(of(0, 3)), 1);
    strategy.segments.clear();
    for (std::int64_t left = model.layers; left > 0; left -= strategy.segments.back()) {
      strategy.segments.push_back(std::min(left, of(1, of(1, 9))));
    }
    strategy.layer_classes.assign(index(of(1, 4)), LayerClass{});
    std::int64_t left = model.layers;
    for (std::size_t c = 0; c + 1 < strategy.layer_classes.size(); ++c) {
      strategy.layer_classes[c].layers = of(1, std::max<std::int64_t>(1, left - 4));
      left -= strategy.layer_classes[c].layers;
    }
    if (left < 1) continue;
    const std::int64_t length = kLayersInARow + i % 2;
    const Rows rows = rows_of(strategy, model, length);
    const std::string whole = in_words(strategy, model);
    before += model.layers;
    shorten_layers(strategy, model, length);
    after += model.layers;
    EXPECT_EQ(rows_of(strategy, model, length), rows) << whole;
    const std::string few = in_words(strategy, model);
    shorten_layers(strategy, model, length);
    EXPECT_EQ(in_words(strategy, model), few) << whole;
  }
  EXPECT_LT(after, before);
}

double memory_of(const std::vector<std::int64_t>& lengths, const OutputWeights& outputs) {
  double most = 0, before = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const auto length = static_cast<double>(lengths[s]);
    before += outputs.stored * length;
    most = std::max(most, static_cast<double>(s + 1) + length * (1 + outputs.repeated) + before);
  }
  return most;
}

// Every shape has all layers, and needs less memory than those with more segments.
TEST(LayerPlaces, ShapesNeedEverLessMemory) {
  for (const std::int64_t layers : {1, 2, 7, 32, 80}) {
    for (const double repeated : {0.0, 0.3, 1.0}) {
      const OutputWeights outputs{repeated, 1 - repeated};
      double least = 1e9;
      for (const std::vector<std::int64_t>& shape : segment_shapes(layers, outputs)) {
        Strategy strategy;
        strategy.segments = shape;
        const std::vector<std::int64_t> lengths = segment_lengths(strategy, layers);
        EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), layers);
        EXPECT_LT(memory_of(lengths, outputs), least);
        least = memory_of(lengths, outputs);
      }
    }
    Strategy ones;
    ones.segments = segment_shapes(layers).front();
    EXPECT_EQ(longest_segment(ones), 1);
  }
  EXPECT_EQ(segment_shapes(32)[3], (std::vector<std::int64_t>{6, 6, 5, 5, 4, 3, 2, 1}));
}

// No other lengths of so many segments need less.
TEST(LayerPlaces, SegmentsNeedTheLeastMemory) {
  constexpr std::int64_t kLayers = 9;
  for (const double repeated : {0.0, 0.4, 1.0}) {
    const OutputWeights outputs{repeated, 1 - repeated};
    for (std::int64_t count = 1; count <= 4; ++count) {
      double least = 1e9;
      std::vector<std::int64_t> lengths(static_cast<std::size_t>(count), 1);
      const std::function<void(std::size_t, std::int64_t)> from = [&](std::size_t s,
                                                                      std::int64_t left) {
        if (s + 1 == lengths.size()) {
          lengths[s] = left;
          if (left > 0) least = std::min(least, memory_of(lengths, outputs));
          return;
        }
        for (lengths[s] = 1; lengths[s] < left; ++lengths[s]) from(s + 1, left - lengths[s]);
      };
      from(0, kLayers);
      EXPECT_NEAR(least_segments(kLayers, count, outputs).memory, least, 1e-4)
          << count << " segments, " << repeated << " repeated";
    }
  }
}

}  // namespace
}  // namespace fpdt
