// Walks segments and classes side by side.
#include "fpdt/spec/layer_places.h"

#include <algorithm>
#include <compare>
#include <set>

#include "fpdt/base/math.h"

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

struct Look {
  std::size_t layer_class = 0;
  std::size_t input_class = 0;  // of the segment's first layer, whose input is stored
  std::int64_t kind = 0;
  bool first = true;  // of its segment
  auto operator<=>(const Look&) const = default;
};
using Row = std::vector<Look>;  // layers

std::vector<Look> looks(const Strategy& strategy, const ModelSpec& model) {
  std::vector<Look> all;
  std::int64_t layer = 0;
  for (const LayerPlace& at : layer_places(strategy, model.layers)) {
    const std::size_t input_class = at.first() ? at.layer_class : all.back().input_class;
    all.push_back({at.layer_class, input_class, model.kind_at(layer++), at.first()});
  }
  return all;
}

// From each layer on, so many layers in a row, or less at the end. Whether the first begins a
// segment makes no difference.
std::vector<Row> rows_of(const std::vector<Look>& layers, std::ptrdiff_t length) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto begin = layers.begin() + static_cast<std::ptrdiff_t>(i);
    rows.emplace_back(begin, std::min(begin + length, layers.end()));
    rows.back().front().first = true;
  }
  return rows;
}

// Finds a short walk through a graph that takes each step of a long one.
//
// The long walk has parts, to which nothing leads back, so the short one takes all steps of a part
// before it leaves. It enters a part by the same two steps, because those before are met only once.
// Then the nearest step that is left is next: in which order the long walk takes them, and how
// often, makes no difference.
class ShortWalk {
 public:
  explicit ShortWalk(const std::vector<std::size_t>& walk) : walk_(walk) {
    const std::size_t nodes = *std::max_element(walk.begin(), walk.end()) + 1;
    std::vector<std::size_t> last(nodes);
    for (std::size_t i = 0; i < walk.size(); ++i) last[walk[i]] = i;
    next_.resize(nodes);
    for (std::size_t i = 0; i < walk.size(); ++i) {
      if (!parts_.empty() && i < parts_.back().end) {
        next_[walk[i - 1]].insert(walk[i]);
        parts_.back().end = std::max(parts_.back().end, last[walk[i]] + 1);
      } else {
        parts_.push_back({i, last[walk[i]] + 1});
      }
    }
    left_ = next_;
  }

  std::vector<std::size_t> run() {
    for (const Part& part : parts_) {
      found_.push_back(walk_[part.begin]);
      if (part.begin > 0 && part.begin + 1 < part.end) take({walk_[part.begin + 1]});
      const auto left = [&](std::size_t from, std::size_t to) { return left_[from].contains(to); };
      while (take(nearest(left))) {
      }
      const std::size_t exit = walk_[part.end - 1];
      if (found_.back() == exit) continue;
      take(nearest([exit](std::size_t, std::size_t to) { return to == exit; }));
    }
    return std::move(found_);
  }

 private:
  struct Part {
    std::size_t begin, end;  // in the walk
  };
  using Path = std::vector<std::size_t>;

  bool take(const Path& path) {
    for (const std::size_t node : path) {
      left_[found_.back()].erase(node);
      found_.push_back(node);
    }
    return !path.empty();
  }

  // The shortest way, within a part, whose last step is accepted; empty if there is none.
  template <class Accepts>
  [[nodiscard]] Path nearest(Accepts accepts) const {
    std::vector<Path> ways{{}};
    std::set<std::size_t> met{found_.back()};
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t at = ways[i].empty() ? found_.back() : ways[i].back();
      for (const std::size_t to : next_[at]) {
        Path way = ways[i];
        way.push_back(to);
        if (accepts(at, to)) return way;
        if (met.insert(to).second) ways.push_back(std::move(way));
      }
    }
    return {};
  }

  const std::vector<std::size_t>& walk_;
  std::vector<Part> parts_;
  std::vector<std::set<std::size_t>> next_, left_;  // of each node, the steps within its part
  std::vector<std::size_t> found_;
};

// The row that follows a row begins with all but the first of its layers, so a step of a walk over
// rows is as many layers in a row as remain, and the walk is a list of layers.
std::vector<Look> shortened(const std::vector<Look>& layers, std::int64_t layers_in_a_row) {
  const std::vector<Row> rows = rows_of(layers, layers_in_a_row - 1);
  const std::set<Row> different(rows.begin(), rows.end());
  const std::vector<Row> known(different.begin(), different.end());
  std::vector<std::size_t> walk;
  for (const Row& row : rows) {
    walk.push_back(index(std::lower_bound(known.begin(), known.end(), row) - known.begin()));
  }
  std::vector<Look> few;
  bool first = true;
  for (const std::size_t number : ShortWalk(walk).run()) {
    const Row& row = known[number];
    few.push_back(row.front());
    few.back().first = first;
    first = row.size() > 1 && row[1].first;
  }
  return few;
}

}  // namespace

void shorten_layers(Strategy& strategy, ModelSpec& model, std::int64_t layers_in_a_row) {
  const std::vector<Look> few = shortened(looks(strategy, model), layers_in_a_row);
  strategy.segments.clear();
  model.leading.clear();
  model.pattern.clear();
  for (LayerClass& one : strategy.layer_classes) one.layers = 0;
  for (const Look& one : few) {
    if (one.first) strategy.segments.push_back(0);
    ++strategy.segments.back();
    ++strategy.layer_classes[one.layer_class].layers;
    model.pattern.push_back(one.kind);
  }
  model.layers = std::ssize(few);
  if (model.kinds.size() == 1) model.pattern.resize(1);
  strategy.layer_classes.back().layers = 0;
  std::vector<std::int64_t>& lengths = strategy.segments;
  while (lengths.size() > 1 && lengths.back() == lengths[lengths.size() - 2]) lengths.pop_back();
}

}  // namespace fpdt
