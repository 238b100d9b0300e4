// Tries the places around a point, first those that no line goes through.
#include "fpdt/report/curve_labels.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "fpdt/report/curve_pen.h"

namespace fpdt {
namespace {

class Labels {
 public:
  Labels(Svg& svg, const CurvePlot& plot, std::vector<Box> taken, const std::optional<Box>& limit)
      : svg_(svg), plot_(plot), taken_(std::move(taken)), limit_(limit) {}

  void write(std::size_t place, std::size_t series, bool above) {
    const CurveValue& value = *plot_.panel.series[series].values[place];
    const std::string text = label_of(plot_.panel, value);
    const std::vector<Box> places = places_of(place, value, text, above);
    if (meets(labels_, places.front())) return;
    for (const Covers covers : {Covers::nothing, Covers::limit, Covers::curve}) {
      for (const Box& box : places) {
        if (box.bottom > plot_.base || meets(labels_, box) || meets(taken_, box) ||
            meets_point(box, place, series) || (covers != Covers::curve && meets_line(box)) ||
            (covers != Covers::limit && limit_ && limit_->touches(box))) {
          continue;
        }
        labels_.push_back(box);
        svg_.text((box.left + box.right) / 2, box.bottom - kBelow, text, "value", Anchor::middle,
                  fill_style(pen_of(plot_.panel, series).ink));
        return;
      }
    }
  }

 private:
  static constexpr double kBelow = 3;  // a line of text
  // The line that a label may cover.
  enum class Covers : std::uint8_t { nothing, limit, curve };

  // The places for a label: on its side of the point, on the other side, and beside the point.
  [[nodiscard]] std::vector<Box> places_of(std::size_t place, const CurveValue& value,
                                           const std::string& text, bool above) const {
    const double half = text_width(text, kLabelSize) / 2 + 3;
    const double x = plot_.xs[place], y = plot_.scale.at(value.value);
    std::vector<Box> places;
    const auto add = [&](double middle, double line) {
      places.push_back({middle - half, middle + half, line - 12, line + kBelow});
    };
    for (const bool over : {above, !above}) {
      for (const double shift : {0.0, half, -half}) add(x + shift, over ? y - 11 : y + 21);
    }
    for (const double shift : {half + 6, -half - 6}) add(x + shift, y + 4.5);
    return places;
  }

  static bool meets(const std::vector<Box>& boxes, const Box& box) {
    return std::any_of(boxes.begin(), boxes.end(),
                       [&](const Box& other) { return box.touches(other); });
  }

  // Whether the box meets the point of another curve at the same place.
  [[nodiscard]] bool meets_point(const Box& box, std::size_t place, std::size_t own) const {
    constexpr double kPoint = 5;
    const std::vector<CurveSeries>& all = plot_.panel.series;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (k == own || place >= all[k].values.size() || !all[k].values[place]) continue;
      const double x = plot_.xs[place], y = plot_.scale.at(all[k].values[place]->value);
      if (box.touches({x - kPoint, x + kPoint, y - kPoint, y + kPoint})) return true;
    }
    return false;
  }

  // A curve is a function of x, so its part over the box is lowest and highest at the ends.
  [[nodiscard]] bool meets_line(const Box& box) const {
    for (const CurveSeries& series : plot_.panel.series) {
      for (std::size_t i = 1; i < series.values.size(); ++i) {
        if (!series.values[i - 1] || !series.values[i]) continue;
        const double x0 = plot_.xs[i - 1], y0 = plot_.scale.at(series.values[i - 1]->value);
        const double x1 = plot_.xs[i], y1 = plot_.scale.at(series.values[i]->value);
        const double from = std::max(x0, box.left), to = std::min(x1, box.right);
        if (from >= to) continue;
        const auto at = [&](double x) { return y0 + (y1 - y0) * (x - x0) / (x1 - x0); };
        const double begin = at(from), end = at(to);
        if (std::min(begin, end) < box.bottom && std::max(begin, end) > box.top) return true;
      }
    }
    return false;
  }

  Svg& svg_;
  const CurvePlot& plot_;
  std::vector<Box> taken_, labels_;
  std::optional<Box> limit_;
};

}  // namespace

std::string label_of(const CurvePanel& panel, const CurveValue& value) {
  return value.label.empty() ? format_value(panel.unit, value.value) : value.label;
}

void draw_labels(Svg& svg, const CurvePlot& plot, std::vector<Box> taken,
                 const std::optional<Box>& limit) {
  const std::vector<CurveSeries>& all = plot.panel.series;
  Labels labels(svg, plot, std::move(taken), limit);
  for (std::size_t i = 0; i < plot.xs.size(); ++i) {
    std::vector<std::size_t> there;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (i < all[k].values.size() && all[k].values[i]) there.push_back(k);
    }
    if (there.empty()) continue;
    const auto lower = [&](std::size_t a, std::size_t b) {
      return all[a].values[i]->value < all[b].values[i]->value;
    };
    const auto least = std::min_element(there.begin(), there.end(), lower);
    auto most = std::max_element(there.begin(), there.end(), lower);
    const auto thick = std::find_if(there.begin(), there.end(), [&](std::size_t k) {
      return all[k].stroke == CurveStroke::thick;
    });
    if (thick != there.end()) most = thick;  // the one that the picture is about
    labels.write(i, *most, true);
    if (lower(*least, *most)) labels.write(i, *least, false);
  }
}

}  // namespace fpdt
