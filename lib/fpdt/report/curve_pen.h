// How a curve is drawn: its colour, its line and its points, and the rows below a panel that show
// how far each curve goes. Internal to report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/report/curve_svg.h"
#include "fpdt/report/svg.h"

namespace fpdt {

struct CurvePen {
  std::string_view ink;
  CurveStroke style = CurveStroke::plain;
  [[nodiscard]] std::string stroke() const;  // attributes of its line
};
CurvePen pen_of(const CurvePanel& panel, std::size_t series);

std::string fill_style(std::string_view color);

void draw_point(Svg& svg, const CurvePen& pen, double x, double y);
void draw_cross(Svg& svg, const CurvePen& pen, double x, double y);
// A piece of the curve, with a point in its middle.
void draw_sample(Svg& svg, const CurvePen& pen, double left, double right, double y);

// A row for each curve: a line to the last place that it reaches, and a cross with the reason at
// the first that it does not. `top`: where the plot ends.
void draw_reach(Svg& svg, const CurvePanel& panel, const std::vector<double>& xs, double top);
// 0 for a panel without rows.
double reach_height(const CurvePanel& panel);

}  // namespace fpdt
