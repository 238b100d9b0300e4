// Where the values of curves are written: beside their points, and not on lines or other labels.
// Internal to report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fpdt/report/curve_scale.h"
#include "fpdt/report/curve_svg.h"
#include "fpdt/report/svg.h"

namespace fpdt {

inline constexpr double kLabelSize = 12.5;

struct Box {
  double left = 0, right = 0, top = 0, bottom = 0;
  [[nodiscard]] bool touches(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// The plot of a panel.
struct CurvePlot {
  const CurvePanel& panel;
  const std::vector<double>& xs;  // of the places
  const CurveScale& scale;
  double top = 0, base = 0;
};

// The label of a value.
std::string label_of(const CurvePanel& panel, const CurveValue& value);

// With two or more curves, the highest gets its labels above and the lowest below, or where there
// is room. Where there is none, a label covers `limit`, or else a curve. One that would touch
// another label, or what is `taken`, is left out.
void draw_labels(Svg& svg, const CurvePlot& plot, std::vector<Box> taken,
                 const std::optional<Box>& limit);

}  // namespace fpdt
