// Walks segments and classes side by side.
#include "fpdt/spec/layer_places.h"

#include <algorithm>

namespace fpdt {

std::int64_t longest_segment(const Strategy& strategy) {
  return *std::max_element(strategy.segments.begin(), strategy.segments.end());
}

std::vector<std::int64_t> segment_lengths(const Strategy& strategy, std::int64_t layers) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; layers > 0; ++i) {
    const std::int64_t length = strategy.segments[std::min(i, strategy.segments.size() - 1)];
    lengths.push_back(std::min(length, layers));
    layers -= lengths.back();
  }
  return lengths;
}

std::vector<LayerPlace> layer_places(const Strategy& strategy, std::int64_t layers) {
  std::vector<LayerPlace> places;
  for (const std::int64_t length : segment_lengths(strategy, layers)) {
    const std::int64_t segment = places.empty() ? 0 : places.back().segment + 1;
    for (std::int64_t place = 0; place < length; ++place) {
      places.push_back({0, segment, place, length});
    }
  }
  std::size_t layer = 0;
  for (std::size_t c = 0; c < strategy.layer_classes.size(); ++c) {
    const std::int64_t count = strategy.layer_classes[c].layers;
    const std::size_t end = count > 0
                                ? std::min(places.size(), layer + static_cast<std::size_t>(count))
                                : places.size();
    for (; layer < end; ++layer) places[layer].layer_class = c;
  }
  return places;
}

std::int64_t shorten_layers(Strategy& strategy, std::int64_t layers, const MostAlike& most) {
  using Segment = std::vector<std::size_t>;  // the class of each layer
  std::vector<Segment> all;
  for (const LayerPlace& at : layer_places(strategy, layers)) {
    if (at.first()) all.emplace_back();
    Segment& last = all.back();
    if (std::count(last.begin(), last.end(), at.layer_class) < most.in_segment) {
      last.push_back(at.layer_class);
    }
  }
  // Beside longer segments of a class, those of two layers need nothing else.
  for (Segment& one : all) {
    const Segment longer(static_cast<std::size_t>(most.in_segment), one.front());
    const bool two = one.size() > 1 && one.front() == one.back();
    if (two && std::find(all.begin(), all.end(), longer) != all.end()) one = longer;
  }
  std::vector<Segment> few;
  std::int64_t alike = 0;
  for (const Segment& one : all) {
    alike = !few.empty() && few.back() == one ? alike + 1 : 1;
    if (alike <= (one.size() == 1 ? most.alone : most.segments)) few.push_back(one);
  }
  strategy.segments.clear();
  for (LayerClass& one : strategy.layer_classes) one.layers = 0;
  std::int64_t left = 0;
  for (const Segment& one : few) {
    const auto length = static_cast<std::int64_t>(one.size());
    strategy.segments.push_back(length);
    left += length;
    for (const std::size_t c : one) ++strategy.layer_classes[c].layers;
  }
  strategy.layer_classes.back().layers = 0;
  std::vector<std::int64_t>& lengths = strategy.segments;
  while (lengths.size() > 1 && lengths.back() == lengths[lengths.size() - 2]) lengths.pop_back();
  return left;
}

}  // namespace fpdt
