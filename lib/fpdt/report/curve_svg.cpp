// Draws panels from top to bottom; in each the shade of obstacles, the grid, ranges and curves,
// with names beside the ends of the curves.
#include "fpdt/report/curve_svg.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/report/curve_labels.h"
#include "fpdt/report/curve_pen.h"
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
    ".limit{font-size:13px;font-weight:600;fill:#C4320A}.reach{font-size:13px;font-weight:600}";
constexpr double kTick = 13.5;         // font sizes, as above
constexpr double kSmall = kLabelSize;  // of values, notes, flags
constexpr double kSide = 52;           // from the plot's edge to the first and last place
constexpr double kHead = 28;           // above the highest value, for its label
constexpr double kFlag = 24;           // above that, for the flag of the mark
constexpr double kTop = 122;           // above the first panel, with one line below the title
constexpr double kLine = 19;           // of the lines below the title
constexpr double kBottom = 68;         // below the last
constexpr double kBetween = 50;        // gap between panels
constexpr double kSample = 36;         // of a curve, before its name
constexpr double kFarLimit = 2.5;      // times the highest value: a limit up to it is drawn

// The position of a panel.
struct Frame {
  const CurvePicture* picture = nullptr;
  const CurvePanel* panel = nullptr;
  std::vector<double> xs;  // of the places
  double top = 0, base = 0;
  CurveScale scale;
  bool first = false;
};

// The height of a name beside the plot, with and without a note.
constexpr double kNoted = 40, kNamed = 24;
constexpr double kNamesAround = 24;  // how far names may stand above and below the plot

// The height that the names beside a plot need.
double names_height(const CurvePicture& picture) {
  double most = 0;
  for (const CurvePanel& panel : picture.panels) {
    double height = panel.limit ? kNamed : 0;
    for (const CurveSeries& series : panel.series) {
      if (!series.name.empty()) height += series.note.empty() ? kNamed : kNoted;
    }
    most = std::max(most, height);
  }
  return most - 2 * kNamesAround;
}

double panel_height(const CurvePicture& picture) {
  const std::size_t panels = picture.panels.size();
  const double usual = panels <= 1 ? 420 : panels == 2 ? 280 : 205;
  return std::max(usual, names_height(picture));
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
    if (y < frame.top - 0.5 || mark.at < frame.scale.low * (1 - 1e-9)) continue;
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

void draw_curve(Svg& svg, const Frame& frame, const CurveSeries& series, const CurvePen& pen) {
  for (const auto& [first, end] : runs(series)) {
    std::string there;
    std::string back;
    std::string curve;
    for (std::size_t i = first; i < end; ++i) {
      const CurveValue& value = *series.values[i];
      const double low = has_range(value) ? value.low : value.value;
      const double high = has_range(value) ? value.high : value.value;
      const std::string x = coordinate(frame.xs[i]);
      const char* move = i == first ? "M" : "L";
      there += fmt::format("{}{} {}", move, x, coordinate(frame.scale.at(high)));
      back = fmt::format("L{} {}{}", x, coordinate(frame.scale.at(low)), back);
      curve += fmt::format("{}{} {}", move, x, coordinate(frame.scale.at(value.value)));
    }
    const bool ranged =
        std::any_of(series.values.begin() + static_cast<std::ptrdiff_t>(first),
                    series.values.begin() + static_cast<std::ptrdiff_t>(end),
                    [](const std::optional<CurveValue>& value) { return has_range(*value); });
    if (ranged) svg.path(there + back + "Z", pen.ink, "fill-opacity=\"0.15\"");
    svg.path(curve, "none", pen.stroke());
  }
}

void draw_points(Svg& svg, const Frame& frame, const CurveSeries& series, const CurvePen& pen) {
  each_value(series, [&](std::size_t i, const CurveValue& value) {
    const std::string& name = series.name.empty() ? frame.panel->title : series.name;
    svg.begin_group(fmt::format("{}, {}: {}{}", frame.picture->places[i].label, name,
                                label_of(*frame.panel, value), value.more));
    draw_point(svg, pen, frame.xs[i], frame.scale.at(value.value));
    svg.end_group();
  });
}

// A cross at the first place that a curve does not reach, as high as the curve ended.
struct Cross {
  std::size_t series = 0;
  double x = 0, y = 0;
  [[nodiscard]] Box box() const { return {x - 8, x + 8, y - 8, y + 8}; }
};

bool begins(const CurveSeries& series) {
  return std::any_of(series.values.begin(), series.values.end(),
                     [](const std::optional<CurveValue>& value) { return value.has_value(); });
}

// Each cross stands as near to the end of its curve as points and other crosses allow.
std::vector<Cross> place_ends(const Frame& frame) {
  constexpr double kApart = 17;
  const std::vector<CurveSeries>& all = frame.panel->series;
  std::vector<Cross> crosses;
  for (std::size_t k = 0; k < all.size(); ++k) {
    // A cross of a curve without any value would look like a value. The row below shows it instead.
    if (!all[k].end || !begins(all[k])) continue;
    const std::size_t place = all[k].end->place;
    double wanted = frame.base;
    each_value(all[k],
               [&](std::size_t, const CurveValue& value) { wanted = frame.scale.at(value.value); });
    std::vector<double> taken;
    for (const CurveSeries& other : all) {
      if (place < other.values.size() && other.values[place]) {
        taken.push_back(frame.scale.at(other.values[place]->value));
      }
    }
    for (const Cross& cross : crosses) {
      if (cross.x == frame.xs[place]) taken.push_back(cross.y);
    }
    const auto free = [&](double y) {
      return y > frame.top + 8 && y < frame.base - 8 &&
             std::all_of(taken.begin(), taken.end(),
                         [&](double other) { return std::abs(other - y) >= kApart; });
    };
    // First tries the places below the curve's end, where no label stands.
    double y = wanted;
    while (y < frame.base && !free(y)) ++y;
    if (!free(y)) y = wanted;
    while (y > frame.top && !free(y)) --y;
    crosses.push_back({k, frame.xs[place], y});
  }
  return crosses;
}

void draw_ends(Svg& svg, const Frame& frame, const std::vector<Cross>& crosses) {
  for (const Cross& cross : crosses) {
    const CurveSeries& series = frame.panel->series[cross.series];
    const CurvePen pen = pen_of(*frame.panel, cross.series);
    const std::size_t place = series.end->place;
    if (place > 0 && place <= series.values.size() && series.values[place - 1]) {
      svg.line(frame.xs[place - 1], frame.scale.at(series.values[place - 1]->value), cross.x,
               cross.y, pen.ink, "stroke-width=\"1.4\" stroke-dasharray=\"1.5 4\"");
    }
    svg.begin_group(fmt::format("{}, {}: {}", frame.picture->places[place].label, series.name,
                                series.end->why));
    draw_cross(svg, pen, cross.x, cross.y);
    svg.end_group();
  }
}

// A name in the column beside the plot.
struct Name {
  double y = 0;
  std::string text, note;
  std::string_view ink;
  std::optional<CurvePen> pen;  // drawn before the name where curves differ in more than colour
  bool limit = false;
  [[nodiscard]] double height() const { return note.empty() ? kNamed : kNoted; }
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
  const bool styled =
      std::any_of(panel.series.begin(), panel.series.end(),
                  [](const CurveSeries& one) { return one.stroke != CurveStroke::plain; });
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    const CurveSeries& series = panel.series[k];
    if (series.name.empty() || (series.end && !begins(series))) continue;  // the row has its name
    double y = frame.base;
    each_value(series,
               [&](std::size_t, const CurveValue& value) { y = frame.scale.at(value.value); });
    const CurvePen pen = pen_of(panel, k);
    names.push_back({y - 12, series.name, series.note, pen.ink,
                     styled ? std::optional(pen) : std::nullopt, false});
  }
  if (panel.limit) {
    const bool inside = limit_in_plot(panel);
    const double y = inside ? frame.scale.at(panel.limit->value) - 12 : frame.top - 20;
    names.push_back({y, (inside ? "" : "▲ ") + panel.limit->name, "", kAlarm, {}, true});
  }
  spread(names, frame.top - kNamesAround, frame.base + kNamesAround);
  for (const Name& name : names) {
    const double x = kColumnLeft + (styled && !name.limit ? kSample + 10 : 0);
    if (name.pen) draw_sample(svg, *name.pen, kColumnLeft, kColumnLeft + kSample, name.y + 12);
    svg.text(x, name.y + 17, fit_text(name.text, 15, kColumnRight - x),
             name.limit ? "limit" : "name", Anchor::start, name.limit ? "" : fill_style(name.ink));
    if (!name.note.empty()) {
      svg.text(x, name.y + 34, fit_text(name.note, kSmall, kColumnRight - x), "note");
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
  // Thick curves first, below the others.
  std::vector<std::size_t> order(panel.series.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](std::size_t k) {
    return panel.series[k].stroke == CurveStroke::thick;
  });
  for (const std::size_t k : order) {
    FPDT_ASSERT(panel.series[k].values.size() <= frame.xs.size());
    draw_curve(svg, frame, panel.series[k], pen_of(panel, k));
  }
  for (const std::size_t k : order) draw_points(svg, frame, panel.series[k], pen_of(panel, k));
  const std::vector<Cross> crosses = place_ends(frame);
  draw_ends(svg, frame, crosses);
  std::vector<Box> taken;
  for (const Cross& cross : crosses) taken.push_back(cross.box());
  std::optional<Box> limit;
  if (limit_in_plot(panel)) {
    const double y = frame.scale.at(panel.limit->value);
    limit = {kPlotLeft, kPlotRight, y - 2, y + 2};
  }
  draw_labels(svg, {panel, frame.xs, frame.scale, frame.top, frame.base}, std::move(taken), limit);
  draw_names(svg, frame);
}

// Draws the names of the places, of the axis, and of the shades.
void draw_axis(Svg& svg, const CurvePicture& picture, const std::vector<double>& xs, double y) {
  // From the last one, which is often the point of the curve.
  double free = kColumnRight;
  for (std::size_t i = xs.size(); i-- > 0;) {
    const CurvePlace& place = picture.places[i];
    const double half = text_width(place.label, kTick) / 2 + 4;
    if (xs[i] + half > free) continue;
    free = xs[i] - half;
    svg.text(xs[i], y + 21, place.label, "tick", Anchor::middle,
             place.obstacle.empty() ? "" : fill_style(kAlarm));
  }
  svg.text((kPlotLeft + kPlotRight) / 2, y + 46, picture.axis, "axis", Anchor::middle);
  if (picture.range.empty()) return;
  svg.rectangle(kColumnLeft, y + 34, 22, 14, curve_color(0), "fill-opacity=\"0.15\"");
  svg.text(kColumnLeft + 30, y + 45.5, picture.range, "note");
}

// The lines below the title.
std::vector<std::string> subtitle_of(const CurvePicture& picture) {
  return wrap_text(picture.subtitle, 15, kColumnRight - kPictureMargin);
}

double top_of(const CurvePicture& picture) {
  const auto lines = static_cast<double>(std::max<std::size_t>(subtitle_of(picture).size(), 1));
  return kTop + kLine * (lines - 1);
}

// The height of all but the plots: title, gaps, rows below panels, axis.
double around_plots(const CurvePicture& picture) {
  double height = top_of(picture) + kBottom;
  for (const CurvePanel& panel : picture.panels) height += reach_height(panel) + kBetween;
  return picture.panels.empty() ? height : height - kBetween;
}

}  // namespace

double least_height(const CurvePicture& picture, double width) {
  constexpr double kLeast = 150;  // of a plot
  const double plots =
      std::max(kLeast, names_height(picture)) * static_cast<double>(picture.panels.size());
  return std::ceil((around_plots(picture) + plots) * width / kPictureWidth);
}

std::string curve_svg(const CurvePicture& picture, const CurveSize& size) {
  Svg svg;
  const double width = kColumnRight - kPictureMargin;
  const double scale = size.width / kPictureWidth;
  svg.text(kPictureMargin, 46, fit_text(picture.title, 25, width, Weight::bold), "title");
  double y = 71;
  for (const std::string& line : subtitle_of(picture)) {
    svg.text(kPictureMargin, y, line, "subtitle");
    y += kLine;
  }
  const std::vector<double> xs = places_x(picture);
  const std::size_t panels = std::max<std::size_t>(picture.panels.size(), 1);
  double height = panel_height(picture);
  if (size.height > 0) {
    height = (size.height / scale - around_plots(picture)) / static_cast<double>(panels);
  }
  y = top_of(picture);
  for (const CurvePanel& panel : picture.panels) {
    const bool first = &panel == &picture.panels.front();
    const double head = kHead + (first && picture.mark ? kFlag : 0);
    const double base = y + height;
    draw_panel(svg, {&picture, &panel, xs, y, base, scale_of(panel, y + head, base), first});
    draw_reach(svg, panel, xs, base);
    y = base + reach_height(panel) + kBetween;
  }
  y -= kBetween;
  draw_axis(svg, picture, xs, y);
  return svg.finish(kPictureWidth, size.height > 0 ? size.height / scale : y + kBottom,
                    picture.title, fmt::format("{}{}", kLook, kCurveStyle), scale);
}

}  // namespace fpdt
