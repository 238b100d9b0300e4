// Four small plots of the same width. Points stand evenly, in the order given: sweeps double.
#include "fpdt/report/sweep_svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/svg.h"

namespace fpdt {
namespace {

constexpr double kWidth = 1400;
constexpr double kPlotWidth = 556;
constexpr double kPlotHeight = 220;
constexpr double kNanoseconds = 1e9;

constexpr std::string_view kAlarm = "#C4320A";
constexpr std::string_view kStyle =
    "text{font-family:Inter,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "fill:#1F2933;font-variant-numeric:tabular-nums}"
    ".title{font-size:25px;font-weight:600}.subtitle{font-size:15px;fill:#52606D}"
    ".heading{font-size:14px;font-weight:600}.axis{font-size:11.5px;fill:#616E7C}"
    ".value,.alarm{font-size:11.5px;font-weight:600;paint-order:stroke;stroke:#FFFFFF;stroke-width:"
    "3px;"
    "stroke-linejoin:round}.alarm{fill:#C4320A}";

// One value of a point; 0: not known.
struct Value {
  double typical = 0;
  double low = 0;
  double high = 0;
  std::string text;
};

struct Plot {
  std::string title;
  std::string_view color;
  std::vector<Value> values;
  double capacity = 0;
  std::string capacity_text;
  std::vector<Tick> (*ticks)(double most) = nullptr;
};

std::vector<Tick> second_ticks(double most) {
  return time_ticks(0, static_cast<std::int64_t>(most), 0, 5);
}
std::vector<Tick> memory_ticks(double most) {
  return byte_ticks(Bytes{static_cast<std::int64_t>(most)}, 5);
}
std::vector<Tick> count_ticks(double most) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(most, 1.0) / 4)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (most / step > 5) step = factor * power;
  }
  std::vector<Tick> ticks;
  for (double at = 0; at <= most; at += std::max(step, 1.0)) {
    ticks.push_back({static_cast<std::int64_t>(at), fmt::format("{:.0f}", at)});
  }
  return ticks;
}

// Where a plot stands, and how its values become pixels.
struct Frame {
  double left = 0;
  double top = 0;
  double most = 1;
  std::size_t points = 1;
  [[nodiscard]] double x(std::size_t i) const {
    return left + kPlotWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(points);
  }
  [[nodiscard]] double y(double value) const {
    return top + kPlotHeight * (1 - std::min(value / most, 1.0));
  }
};

double most_of(const Plot& plot) {
  double most = 0;
  for (const Value& value : plot.values) most = std::max({most, value.typical, value.high});
  // A capacity far above would leave the curve no room; one far below belongs to the picture.
  if (plot.capacity < 2.5 * most) most = std::max(most, plot.capacity);
  return most > 0 ? 1.15 * most : 1;
}

void draw_axes(Svg& svg, const SweepPicture& picture, const Plot& plot, const Frame& frame) {
  svg.text(frame.left, frame.top - 10, plot.title, "heading");
  svg.rectangle(frame.left, frame.top, kPlotWidth, kPlotHeight, "#F7F9FB");
  for (const Tick& tick : plot.ticks(frame.most)) {
    const double y = frame.y(static_cast<double>(tick.at));
    svg.line(frame.left, y, frame.left + kPlotWidth, y, "#D9DEE4");
    svg.text(frame.left - 10, y + 4, tick.label, "axis", Anchor::end);
  }
  const double bottom = frame.top + kPlotHeight;
  // Labels that would touch are left out.
  double free = 0;
  for (std::size_t i = 0; i < frame.points; ++i) {
    const SweepPoint& point = picture.points[i];
    const double half = text_width(point.label, 11.5) / 2 + 4;
    if (frame.x(i) - half < free) continue;
    free = frame.x(i) + half;
    svg.text(frame.x(i), bottom + 17, point.label, point.binding.empty() ? "axis" : "alarm",
             Anchor::middle);
  }
  svg.text(frame.left + kPlotWidth / 2, bottom + 37, picture.axis, "axis", Anchor::middle);
  if (plot.capacity <= 0) return;
  if (plot.capacity > frame.most) {
    svg.text(frame.left + kPlotWidth, frame.top - 10, "▲ " + plot.capacity_text, "alarm",
             Anchor::end);
    return;
  }
  const double y = frame.y(plot.capacity);
  svg.line(frame.left, y, frame.left + kPlotWidth, y, kAlarm,
           "stroke-width=\"1.6\" stroke-dasharray=\"7 4\"");
  svg.text(frame.left + 8, y - 6, plot.capacity_text, "alarm");
}

// The range of the machine's rates, and the curve through what is known.
void draw_curve(Svg& svg, const Plot& plot, const Frame& frame) {
  std::string there;
  std::string back;
  std::string curve;
  for (std::size_t i = 0; i < frame.points; ++i) {
    const Value& value = plot.values[i];
    if (value.typical <= 0) continue;
    const std::string x = coordinate(frame.x(i));
    curve +=
        fmt::format("{}{} {}", curve.empty() ? "M" : "L", x, coordinate(frame.y(value.typical)));
    if (value.high <= 0) continue;
    there += fmt::format("{}{} {}", there.empty() ? "M" : "L", x, coordinate(frame.y(value.high)));
    back = fmt::format("L{} {}{}", x, coordinate(frame.y(value.low)), back);
  }
  if (!there.empty()) svg.path(there + back + "Z", plot.color, "fill-opacity=\"0.16\"");
  svg.path(curve, "none",
           fmt::format("stroke=\"{}\" stroke-width=\"2.2\" stroke-linejoin=\"round\"", plot.color));
}

void draw_points(Svg& svg, const SweepPicture& picture, const Plot& plot, const Frame& frame) {
  double free = 0;  // of the value texts
  for (std::size_t i = 0; i < frame.points; ++i) {
    const SweepPoint& point = picture.points[i];
    const Value& value = plot.values[i];
    if (value.typical <= 0) continue;
    const double x = frame.x(i);
    const double y = frame.y(value.typical);
    const bool fits = point.binding.empty();
    svg.begin_group(
        fits ? fmt::format("{}: {}", point.label, value.text)
             : fmt::format("{}: {}, does not fit: {}", point.label, value.text, point.binding));
    if (fits) {
      svg.path(
          fmt::format("M{} {}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", coordinate(x), coordinate(y)),
          plot.color, "stroke=\"#FFFFFF\" stroke-width=\"1.2\"");
    } else {
      svg.path(fmt::format("M{0} {1}m-5 -5l10 10m0 -10l-10 10", coordinate(x), coordinate(y)),
               "none", fmt::format("stroke=\"{}\" stroke-width=\"2\"", kAlarm));
    }
    const double half = text_width(value.text, 11.5) / 2 + 3;
    if (x - half >= free) {
      svg.text(x, y - 11, value.text, fits ? "value" : "alarm", Anchor::middle);
      free = x + half;
    }
    svg.end_group();
  }
}

std::vector<Plot> plots_of(const SweepPicture& picture) {
  Plot seconds{"Step time", "#332288", {}, 0, "", second_ticks};
  Plot tokens{"Tokens a second, each device", "#117733", {}, 0, "", count_ticks};
  const auto capacity = [](Bytes bytes) {
    return bytes.value > 0 ? "capacity " + format_bytes(bytes) : std::string();
  };
  Plot device{"Device memory, peak",
              "#0072B2",
              {},
              static_cast<double>(picture.device_capacity.value),
              capacity(picture.device_capacity),
              memory_ticks};
  Plot host{"Pinned host memory of a node, peak",
            "#E69F00",
            {},
            static_cast<double>(picture.host_capacity.value),
            capacity(picture.host_capacity),
            memory_ticks};
  for (const SweepPoint& point : picture.points) {
    const auto ns = static_cast<std::int64_t>(point.seconds * kNanoseconds);
    seconds.values.push_back({point.seconds * kNanoseconds, point.seconds_low * kNanoseconds,
                              point.seconds_high * kNanoseconds, format_nanoseconds(ns)});
    tokens.values.push_back(
        {point.tokens_per_second, 0, 0, fmt::format("{:.0f}", point.tokens_per_second)});
    device.values.push_back(
        {static_cast<double>(point.device.value), 0, 0, format_bytes(point.device)});
    host.values.push_back({static_cast<double>(point.host.value), 0, 0, format_bytes(point.host)});
  }
  return {seconds, tokens, device, host};
}

}  // namespace

std::string sweep_svg(const SweepPicture& picture) {
  Svg svg;
  svg.text(28, 46, fit_text(picture.title, 25, kWidth - 56), "title");
  svg.text(28, 71, fit_text(picture.subtitle, 15, kWidth - 56), "subtitle");
  double bottom = 130;
  if (!picture.points.empty()) {
    const std::vector<Plot> plots = plots_of(picture);
    for (std::size_t i = 0; i < plots.size(); ++i) {
      const Frame frame{i % 2 == 0 ? 108.0 : 804.0, i < 2 ? 130.0 : 444.0, most_of(plots[i]),
                        picture.points.size()};
      draw_axes(svg, picture, plots[i], frame);
      draw_curve(svg, plots[i], frame);
      draw_points(svg, picture, plots[i], frame);
      bottom = frame.top + kPlotHeight;
    }
  }
  const bool any = std::any_of(picture.points.begin(), picture.points.end(),
                               [](const SweepPoint& point) { return !point.binding.empty(); });
  if (any) {
    svg.text(28, bottom + 66, "✕ does not fit", "alarm");
    bottom += 20;
  }
  return svg.finish(kWidth, bottom + 62, picture.title, kStyle);
}

}  // namespace fpdt
