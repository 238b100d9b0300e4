// Draws single curves, and the rows of what they reach.
#include "fpdt/report/curve_pen.h"

#include <fmt/format.h>

#include "fpdt/report/look.h"
#include "fpdt/report/palette.h"

namespace fpdt {
namespace {

constexpr double kReachHead = 46;  // above the first row, with the title
constexpr double kReachRow = 21;
constexpr double kReachSize = 13;  // font sizes
constexpr double kReachName = 12.5;

bool has_name(const CurveSeries& series) { return !series.name.empty(); }

// The number of rows that share the name beside this one; 0: an earlier row has the name.
std::size_t kinship(const CurvePanel& panel, std::size_t series) {
  const std::string& family = panel.series[series].family;
  if (family.empty()) return 1;
  const auto kin = [&](std::size_t k) { return panel.series[k].family == family; };
  if (series > 0 && kin(series - 1)) return 0;
  std::size_t rows = 1;
  while (series + rows < panel.series.size() && kin(series + rows)) ++rows;
  return rows;
}

}  // namespace

std::string CurvePen::stroke() const {
  const char* width = style == CurveStroke::thick ? "9" : "2.6";
  const char* dashes = style == CurveStroke::broken ? " stroke-dasharray=\"7 5\"" : "";
  return fmt::format("stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}", ink, width,
                     dashes);
}

CurvePen pen_of(const CurvePanel& panel, std::size_t series) {
  const CurveSeries& one = panel.series[series];
  if (one.stroke == CurveStroke::thick) return {kInk, one.stroke};
  return {curve_color(one.color.value_or(series)), one.stroke};
}

std::string fill_style(std::string_view color) { return fmt::format("style=\"fill:{}\"", color); }

void draw_point(Svg& svg, const CurvePen& pen, double x, double y) {
  const std::string circle = fmt::format("M{} {}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
                                         coordinate(x), coordinate(y));
  if (pen.style == CurveStroke::broken) {
    svg.path(circle, kPaper, fmt::format("stroke=\"{}\" stroke-width=\"2\"", pen.ink));
  } else {
    svg.path(circle, pen.ink, "stroke=\"#FFFFFF\" stroke-width=\"1.5\"");
  }
}

void draw_cross(Svg& svg, const CurvePen& pen, double x, double y) {
  const std::string cross =
      fmt::format("M{} {}m-5 -5l10 10m0 -10l-10 10", coordinate(x), coordinate(y));
  svg.path(cross, "none", fmt::format("stroke=\"{}\" stroke-width=\"6.5\"", kPaper));
  svg.path(cross, "none", fmt::format("stroke=\"{}\" stroke-width=\"3\"", pen.ink));
}

void draw_sample(Svg& svg, const CurvePen& pen, double left, double right, double y) {
  svg.path(fmt::format("M{0} {2}L{1} {2}", coordinate(left), coordinate(right), coordinate(y)),
           "none", pen.stroke());
  draw_point(svg, pen, (left + right) / 2, y);
}

double reach_height(const CurvePanel& panel) {
  if (panel.reach.empty()) return 0;
  double height = kReachHead;
  for (const CurveSeries& series : panel.series) height += has_name(series) ? kReachRow : 0;
  return height;
}

void draw_reach(Svg& svg, const CurvePanel& panel, const std::vector<double>& xs, double top) {
  if (panel.reach.empty()) return;
  svg.text(kPlotLeft, top + 36, panel.reach, "panel");
  double y = top + kReachHead + kReachRow / 2;
  svg.rectangle(kPlotLeft, top + kReachHead, kPlotRight - kPlotLeft,
                reach_height(panel) - kReachHead, kPaper);
  for (std::size_t k = 0; k < panel.series.size(); ++k) {
    const CurveSeries& series = panel.series[k];
    if (!has_name(series)) continue;
    const CurvePen pen = pen_of(panel, k);
    const double width = kPlotLeft - kPictureMargin;
    const std::size_t kin = kinship(panel, k);
    if (kin > 0) {
      const std::string& name = series.family.empty() ? series.name : series.family;
      svg.text(kPlotLeft - 12, y + 4.5 + kReachRow * static_cast<double>(kin - 1) / 2,
               fit_text(name, kReachName, width), "note", Anchor::end, fill_style(pen.ink));
    }
    double last = kPlotLeft;
    for (std::size_t i = 0; i < series.values.size(); ++i) {
      if (series.values[i]) last = xs[i];
    }
    if (last > kPlotLeft) {
      svg.path(fmt::format("M{} {}L{} {}", coordinate(kPlotLeft), coordinate(y), coordinate(last),
                           coordinate(y)),
               "none", pen.stroke());
    }
    if (series.end) {
      const double x = xs[series.end->place];
      svg.begin_group(fmt::format("{}: {}", series.name, series.end->why));
      draw_cross(svg, pen, x, y);
      svg.end_group();
      // Beside the cross, where there is room.
      const bool right =
          x + 14 + text_width(series.end->why, kReachSize, Weight::bold) < kColumnRight;
      svg.text(right ? x + 14 : x - 14, y + 4.5, series.end->why, "reach",
               right ? Anchor::start : Anchor::end, fill_style(pen.ink));
    }
    y += kReachRow;
  }
}

}  // namespace fpdt
