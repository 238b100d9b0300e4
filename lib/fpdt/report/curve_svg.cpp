// Draws panels from top to bottom; in each the shade of obstacles, the grid, ranges and curves,
// with names beside the ends of the curves.
#include "fpdt/report/curve_svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/report/curve_scale.h"
#include "fpdt/report/look.h"
#include "fpdt/report/palette.h"
#include "fpdt/report/svg.h"

namespace fpdt {
namespace {

constexpr std::string_view kCurveStyle =
    ".tick{font-size:13.5px;fill:#52606D}.axis{font-size:14px;font-weight:600;fill:#52606D}"
    ".panel{font-size:16px;font-weight:600}.name{font-size:15px;font-weight:600}"
    ".note{font-size:12.5px;fill:#616E7C}.flag{font-size:12.5px;font-weight:600;fill:#FFFFFF}"
    ".value{font-size:12.5px;font-weight:600;paint-order:stroke;stroke:#F7F9FB;stroke-width:3px;"
    "stroke-linejoin:round}.obstacle{font-size:14px;font-weight:600;fill:#C4320A}"
    ".limit{font-size:13px;font-weight:600;fill:#C4320A}";
constexpr double kTick = 13.5;     // font sizes, as above
constexpr double kSmall = 12.5;    // of values, notes, flags
constexpr double kSide = 52;       // from the plot's edge to the first and last place
constexpr double kHead = 28;       // above the highest value, for its label
constexpr double kFlag = 24;       // above that, for the flag of the mark
constexpr double kBetween = 50;    // gap between panels
constexpr double kFarLimit = 2.5;  // times the highest value: a limit up to it is drawn

// The position of a panel.
struct Frame {
  const CurvePicture* picture = nullptr;
  const CurvePanel* panel = nullptr;
  std::vector<double> xs;  // of the places
  double top = 0, base = 0;
  CurveScale scale;
  bool first = false;
};

std::string fill_style(std::string_view color) { return fmt::format("style=\"fill:{}\"", color); }

double panel_height(std::size_t panels) {
  if (panels <= 1) return 420;
  return panels == 2 ? 280 : 205;
}

std::vector<double> places_x(const CurvePicture& picture) {
  std::vector<double> xs;
  const std::vector<CurvePlace>& places = picture.places;
  const double left = kPlotLeft + kSide;
  const double right = kPlotRight - kSide;
  if (places.size() == 1) return {(left + right) / 2};
  if (places.empty()) return {};
  const CurveScale by_log{places.front().at, places.back().at, left, right, true};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(places.size() - 1);
    xs.push_back(picture.logarithmic ? by_log.at(places[i].at) : left + (right - left) * part);
  }
  return xs;
}

// Calls see(place, value) for each value that exists.
template <class See>
void each_value(const CurveSeries& series, See see) {
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (series.values[i]) see(i, *series.values[i]);
  }
}

bool has_range(const CurveValue& value) { return value.low != 0 || value.high != 0; }

// The highest and lowest values of a panel, ranges included; 0 and 0 when it has none.
std::pair<double, double> extent(const CurvePanel& panel) {
  double low = 0;
  double high = 0;
  for (const CurveSeries& series : panel.series) {
    each_value(series, [&](std::size_t, const CurveValue& value) {
      const double least = has_range(value) ? std::min(value.low, value.value) : value.value;
      low = low == 0 ? least : std::min(low, least);
      high = std::max({high, value.value, value.high});
    });
  }
  return {low, high};
}

bool limit_in_plot(const CurvePanel& panel) {
  if (!panel.limit) return false;
  const double high = extent(panel).second;
  return high == 0 || panel.limit->value <= kFarLimit * high;
}

CurveScale scale_of(const CurvePanel& panel, double top, double base) {
  auto [low, high] = extent(panel);
  if (limit_in_plot(panel)) high = std::max(high, panel.limit->value);
  if (high <= 0) high = 1;
  if (!panel.logarithmic) return {0, high, base, top, false};
  if (low <= 0) low = high / 10;
  const std::vector<CurveMark> marks = logarithmic_marks(panel.unit, low, high, 1);
  return {marks.front().at, std::max(high, marks[1].at), base, top, true};
}

void draw_obstacles(Svg& svg, const Frame& frame) {
  const std::vector<CurvePlace>& places = frame.picture->places;
  for (std::size_t i = 0; i < places.size();) {
    std::size_t end = i + 1;
    while (end < places.size() && places[end].obstacle == places[i].obstacle) ++end;
    if (!places[i].obstacle.empty()) {
      const double left = i == 0 ? kPlotLeft : (frame.xs[i - 1] + frame.xs[i]) / 2;
      const double right =
          end == places.size() ? kPlotRight : (frame.xs[end - 1] + frame.xs[end]) / 2;
      svg.rectangle(left, frame.top, right - left, frame.base - frame.top, kAlarm,
                    "fill-opacity=\"0.08\"");
      const double x = (left + right) / 2;
      const double y = (frame.top + frame.base) / 2;
      const std::string& text = places[i].obstacle;
      const bool wide = text_width(text, 14) < right - left - 8;
      const std::string turned =
          wide ? "" : fmt::format("transform=\"rotate(-90 {} {})\"", coordinate(x), coordinate(y));
      if (frame.first)
        svg.text(x + (wide ? 0 : 5), y + 5, text, "obstacle", Anchor::middle, turned);
    }
    i = end;
  }
}

void draw_grid(Svg& svg, const Frame& frame) {
  const CurvePanel& panel = *frame.panel;
  const double height = frame.base - frame.top;
  const int count = static_cast<int>(height / (panel.logarithmic ? 25 : 46));
  const std::vector<CurveMark> marks =
      panel.logarithmic ? logarithmic_marks(panel.unit, frame.scale.low, frame.scale.high, count)
                        : linear_marks(panel.unit, frame.scale.high, count);
  for (const CurveMark& mark : marks) {
    const double y = frame.scale.at(mark.at);
    if (y < frame.top - 0.5) continue;
    svg.line(kPlotLeft, y, kPlotRight, y, kRule, "stroke-width=\"1\"");
    svg.text(kPlotLeft - 12, y + 4.5, mark.label, "tick", Anchor::end);
  }
  for (const double x : frame.xs) {
    svg.line(x, frame.base, x, frame.base + 5, kSoftInk, "stroke-width=\"1\"");
  }
}

// Runs of places that have a value.
std::vector<std::pair<std::size_t, std::size_t>> runs(const CurveSeries& series) {
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (!series.values[i]) continue;
    if (i == 0 || !series.values[i - 1]) all.push_back({i, i});
    all.back().second = i + 1;
  }
  return all;
}

void draw_curve(Svg& svg, const Frame& frame, const CurveSeries& series, std::string_view ink) {
  for (const auto& [first, end] : runs(series)) {
    std::string there;
    std::string back;
    std::string curve;
    for (std::size_t i = first; i < end; ++i) {
      const CurveValue& value = *series.values[i];
      const double low = has_range(value) ? value.low : value.value;
      const double high = has_range(value) ? value.high : value.value;
      const std::string x = coordinate(frame.xs[i]);
      const char* pen = i == first ? "M" : "L";
      there += fmt::format("{}{} {}", pen, x, coordinate(frame.scale.at(high)));
      back = fmt::format("L{} {}{}", x, coordinate(frame.scale.at(low)), back);
      curve += fmt::format("{}{} {}", pen, x, coordinate(frame.scale.at(value.value)));
    }
    const bool ranged =
        std::any_of(series.values.begin() + static_cast<std::ptrdiff_t>(first),
                    series.values.begin() + static_cast<std::ptrdiff_t>(end),
                    [](const std::optional<CurveValue>& value) { return has_range(*value); });
    if (ranged) svg.path(there + back + "Z", ink, "fill-opacity=\"0.15\"");
    svg.path(curve, "none",
             fmt::format("stroke=\"{}\" stroke-width=\"2.6\" stroke-linejoin=\"round\"", ink));
  }
}

std::string label_of(const CurvePanel& panel, const CurveValue& value) {
  return value.label.empty() ? format_value(panel.unit, value.value) : value.label;
}

void draw_points(Svg& svg, const Frame& frame, const CurveSeries& series, std::string_view ink) {
  each_value(series, [&](std::size_t i, const CurveValue& value) {
    const std::string& name = series.name.empty() ? frame.panel->title : series.name;
    svg.begin_group(fmt::format("{}, {}: {}", frame.picture->places[i].label, name,
                                label_of(*frame.panel, value)));
    svg.path(fmt::format("M{} {}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
                         coordinate(frame.xs[i]), coordinate(frame.scale.at(value.value))),
             ink, "stroke=\"#FFFFFF\" stroke-width=\"1.5\"");
    svg.end_group();
  });
}

struct Box {
  double left = 0, right = 0, top = 0, bottom = 0;
  [[nodiscard]] bool touches(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// With two or more curves, the highest gets its labels above and the lowest below, where there is
// room. A label that would touch another one is left out.
void draw_labels(Svg& svg, const Frame& frame) {
  const std::vector<CurveSeries>& all = frame.panel->series;
  std::vector<Box> taken;
  const auto write = [&](std::size_t i, std::size_t series, bool above) {
    const CurveValue& value = *all[series].values[i];
    const std::string text = label_of(*frame.panel, value);
    const double half = text_width(text, kSmall) / 2 + 3;
    const double x = frame.xs[i];
    const double y = frame.scale.at(value.value);
    const double line = above || y + 26 > frame.base ? y - 11 : y + 21;
    const Box box{x - half, x + half, line - 12, line + 3};
    const bool touches = std::any_of(taken.begin(), taken.end(),
                                     [&](const Box& other) { return box.touches(other); });
    if (touches) return;
    taken.push_back(box);
    svg.text(x, line, text, "value", Anchor::middle, fill_style(curve_color(series)));
  };
  for (std::size_t i = 0; i < frame.xs.size(); ++i) {
    std::vector<std::size_t> there;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (i < all[k].values.size() && all[k].values[i]) there.push_back(k);
    }
    if (there.empty()) continue;
    const auto lower = [&](std::size_t a, std::size_t b) {
      return all[a].values[i]->value < all[b].values[i]->value;
    };
    const auto [least, most] = std::minmax_element(there.begin(), there.end(), lower);
    write(i, *most, true);
    if (least != most) write(i, *least, false);
  }
}

// A name in the column beside the plot.
struct Name {
  double y = 0;
  std::string text, note;
  std::string_view ink;
  bool limit = false;
  [[nodiscard]] double height() const { return note.empty() ? 24 : 40; }
};

// Places names between `top` and `bottom`, in the order of their targets and without overlap.
void spread(std::vector<Name>& names, double top, double bottom) {
  std::stable_sort(names.begin(), names.end(),
                   [](const Name& a, const Name& b) { return a.y < b.y; });
  double free = top;
  for (Name& name : names) {
    name.y = std::max(name.y, free);
    free = name.y + name.height();
  }
  double most = bottom;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->y = std::min(name->y, most - name->height());
    most = name->y;
  }
}

void draw_names(Svg& svg, const Frame& frame) {
  const CurvePanel& panel = *frame.panel;
  std::vector<Name> names;
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    if (panel.series[k].name.empty()) continue;
    double y = frame.base;
    each_value(panel.series[k],
               [&](std::size_t, const CurveValue& value) { y = frame.scale.at(value.value); });
    names.push_back({y - 12, panel.series[k].name, panel.series[k].note, curve_color(k), false});
  }
  if (panel.limit) {
    const bool inside = limit_in_plot(panel);
    const double y = inside ? frame.scale.at(panel.limit->value) - 12 : frame.top - 20;
    names.push_back({y, (inside ? "" : "▲ ") + panel.limit->name, "", kAlarm, true});
  }
  spread(names, frame.top - 24, frame.base + 24);
  const double width = kColumnRight - kColumnLeft;
  for (const Name& name : names) {
    svg.text(kColumnLeft, name.y + 17, fit_text(name.text, 15, width),
             name.limit ? "limit" : "name", Anchor::start, name.limit ? "" : fill_style(name.ink));
    if (!name.note.empty()) {
      svg.text(kColumnLeft, name.y + 34, fit_text(name.note, kSmall, width), "note");
    }
  }
}

void draw_mark(Svg& svg, const Frame& frame) {
  const CurvePicture& picture = *frame.picture;
  if (!picture.mark || *picture.mark >= frame.xs.size()) return;
  const double x = frame.xs[*picture.mark];
  svg.line(x, frame.top, x, frame.base, kInk, "stroke-width=\"1\" stroke-dasharray=\"2 3\"");
  if (!frame.first || picture.mark_name.empty()) return;
  const double width = text_width(picture.mark_name, kSmall) + 20;
  svg.rectangle(x - width / 2, frame.top, width, 20, kInk, "rx=\"2\"");
  svg.text(x, frame.top + 14.5, picture.mark_name, "flag", Anchor::middle);
}

void draw_panel(Svg& svg, const Frame& frame) {
  const CurvePanel& panel = *frame.panel;
  svg.text(kPlotLeft, frame.top - 10, panel.title, "panel");
  svg.rectangle(kPlotLeft, frame.top, kPlotRight - kPlotLeft, frame.base - frame.top, kPaper);
  draw_grid(svg, frame);
  draw_obstacles(svg, frame);
  draw_mark(svg, frame);
  if (limit_in_plot(panel)) {
    const double y = frame.scale.at(panel.limit->value);
    svg.line(kPlotLeft, y, kPlotRight, y, kAlarm, "stroke-width=\"1.8\" stroke-dasharray=\"7 4\"");
  }
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    FPDT_ASSERT(panel.series[k].values.size() <= frame.xs.size());
    draw_curve(svg, frame, panel.series[k], curve_color(k));
  }
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    draw_points(svg, frame, panel.series[k], curve_color(k));
  }
  draw_labels(svg, frame);
  draw_names(svg, frame);
}

// Draws the names of the places, of the axis, and of the shades.
void draw_axis(Svg& svg, const CurvePicture& picture, const std::vector<double>& xs, double y) {
  double free = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const CurvePlace& place = picture.places[i];
    const double half = text_width(place.label, kTick) / 2 + 4;
    if (xs[i] - half < free) continue;
    free = xs[i] + half;
    svg.text(xs[i], y + 21, place.label, "tick", Anchor::middle,
             place.obstacle.empty() ? "" : fill_style(kAlarm));
  }
  svg.text((kPlotLeft + kPlotRight) / 2, y + 46, picture.axis, "axis", Anchor::middle);
  if (picture.range.empty()) return;
  svg.rectangle(kColumnLeft, y + 34, 22, 14, curve_color(0), "fill-opacity=\"0.15\"");
  svg.text(kColumnLeft + 30, y + 45.5, picture.range, "note");
}

}  // namespace

std::string curve_svg(const CurvePicture& picture) {
  Svg svg;
  const double width = kColumnRight - kPictureMargin;
  svg.text(kPictureMargin, 46, fit_text(picture.title, 25, width, Weight::bold), "title");
  svg.text(kPictureMargin, 71, fit_text(picture.subtitle, 15, width), "subtitle");
  const std::vector<double> xs = places_x(picture);
  const double height = panel_height(picture.panels.size());
  double y = 122;
  for (const CurvePanel& panel : picture.panels) {
    const bool first = &panel == &picture.panels.front();
    const double head = kHead + (first && picture.mark ? kFlag : 0);
    const double base = y + height;
    draw_panel(svg, {&picture, &panel, xs, y, base, scale_of(panel, y + head, base), first});
    y = base + kBetween;
  }
  y -= kBetween;
  draw_axis(svg, picture, xs, y);
  return svg.finish(kPictureWidth, y + 68, picture.title, fmt::format("{}{}", kLook, kCurveStyle));
}

}  // namespace fpdt
