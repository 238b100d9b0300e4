// Segments and classes side by side, and shapes of segments.
#include "fpdt/spec/layer_places.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

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

TEST(LayerPlaces, ShortenWhatIsAlike) {
  Strategy strategy;
  strategy.segments = {8, 8, 8, 4, 1};
  strategy.layer_classes.assign(2, LayerClass{});
  strategy.layer_classes.front().layers = 20;
  ModelSpec model;
  model.layers = 32;
  shorten_layers(strategy, model, {.in_segment = 3, .segments = 2, .alone = 3});
  EXPECT_EQ(model.layers, 18);
  EXPECT_EQ(strategy.segments, (std::vector<std::int64_t>{3, 3, 6, 3, 1}));
  EXPECT_EQ(strategy.layer_classes.front().layers, 9);
}

// A pattern that repeats remains twice, with the layers after its last repetition.
TEST(LayerPlaces, ShortenPatternsThatRepeat) {
  Strategy strategy;
  ModelSpec model;
  model.layers = 62;
  model.kinds.resize(2);
  model.pattern = {0, 0, 0, 0, 0, 1};
  const MostAlike most{.in_segment = 3, .segments = 2, .alone = 3};
  ModelSpec alone = model;
  shorten_layers(strategy, alone, most);
  EXPECT_EQ(alone.pattern, (std::vector<std::int64_t>{0, 0, 0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(alone.layers, 10);
  EXPECT_EQ(strategy.segments, std::vector<std::int64_t>{1});
  strategy.segments = {6};
  shorten_layers(strategy, model, most);
  EXPECT_EQ(model.pattern, (std::vector<std::int64_t>{0, 0, 0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(strategy.segments, (std::vector<std::int64_t>{4, 4, 2}));
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
