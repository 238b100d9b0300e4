// Walks segments and classes side by side.
#include "fpdt/spec/layer_places.h"

#include <algorithm>
#include <utility>

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

namespace {

// The class and the kind of a layer, and those of the layers of a segment.
using Look = std::pair<std::size_t, std::int64_t>;
using Segment = std::vector<Look>;

std::vector<Segment> looks_of_segments(const Strategy& strategy, const ModelSpec& model,
                                       std::int64_t in_segment) {
  std::vector<Segment> all;
  std::int64_t layer = 0;
  for (const LayerPlace& at : layer_places(strategy, model.layers)) {
    if (at.first()) all.emplace_back();
    const Look look{at.layer_class, model.kind_at(layer++)};
    Segment& last = all.back();
    if (std::count(last.begin(), last.end(), look) < in_segment) last.push_back(look);
  }
  return all;
}

// Of runs of `length` segments that repeat, as many remain.
void shorten_runs(std::vector<Segment>& segments, std::size_t length, std::size_t most) {
  std::vector<Segment> few;
  std::size_t alike = 0;  // segments in a row, each as the one so far before
  for (const Segment& one : segments) {
    const bool repeats = few.size() >= length && few[few.size() - length] == one;
    alike = repeats ? alike + 1 : 0;
    few.push_back(one);
    if (alike < most * length) continue;
    few.resize(few.size() - length);
    alike -= length;
  }
  segments = std::move(few);
}

}  // namespace

void shorten_layers(Strategy& strategy, ModelSpec& model, const MostAlike& most) {
  std::vector<Segment> all = looks_of_segments(strategy, model, most.in_segment);
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
  if (model.kinds.size() > 1) {
    for (std::size_t length = 2; 2 * length <= few.size(); ++length) {
      shorten_runs(few, length, static_cast<std::size_t>(most.segments));
    }
  }
  strategy.segments.clear();
  model.leading.clear();
  model.pattern.clear();
  for (LayerClass& one : strategy.layer_classes) one.layers = 0;
  for (const Segment& one : few) {
    strategy.segments.push_back(static_cast<std::int64_t>(one.size()));
    for (const auto& [layer_class, kind] : one) {
      ++strategy.layer_classes[layer_class].layers;
      model.pattern.push_back(kind);
    }
  }
  model.layers = static_cast<std::int64_t>(model.pattern.size());
  if (model.kinds.size() == 1) model.pattern.resize(1);
  strategy.layer_classes.back().layers = 0;
  std::vector<std::int64_t>& lengths = strategy.segments;
  while (lengths.size() > 1 && lengths.back() == lengths[lengths.size() - 2]) lengths.pop_back();
}

}  // namespace fpdt
