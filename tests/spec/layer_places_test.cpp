// Segments and classes side by side, and shapes of segments.
#include "fpdt/spec/layer_places.h"

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
  EXPECT_EQ(shorten_layers(strategy, 32, {.in_segment = 3, .segments = 2, .alone = 3}), 18);
  EXPECT_EQ(strategy.segments, (std::vector<std::int64_t>{3, 3, 6, 3, 1}));
  EXPECT_EQ(strategy.layer_classes.front().layers, 9);
}

// Every shape has all layers, grows towards the input, and the inputs of a segment find room.
TEST(LayerPlaces, ShapesNeedFewPlaces) {
  for (const std::int64_t layers : {1, 2, 7, 32, 80}) {
    for (const std::vector<std::int64_t>& shape : segment_shapes(layers)) {
      Strategy strategy;
      strategy.segments = shape;
      const std::vector<std::int64_t> lengths = segment_lengths(strategy, layers);
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), layers);
      for (std::size_t s = 1; s < lengths.size(); ++s) EXPECT_LE(lengths[s] - 1, lengths[s - 1]);
    }
    Strategy ones;
    ones.segments = segment_shapes(layers).front();
    EXPECT_EQ(longest_segment(ones), 1);
  }
  EXPECT_EQ(segment_shapes(32)[3], (std::vector<std::int64_t>{6, 6, 5, 5, 4, 3, 2, 1}));
}

}  // namespace
}  // namespace fpdt
