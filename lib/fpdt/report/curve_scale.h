// Maps numbers to pixels, and finds the round numbers beside an axis. Internal to report.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/curve_svg.h"

namespace fpdt {

// "53.6 %", "63.5 GiB", "1 h 36 min", "1733".
std::string format_value(CurveUnit unit, double value);

struct CurveMark {
  double at = 0;
  std::string label;
};

// Round numbers from 0 to at most `most`, about `count`.
std::vector<CurveMark> linear_marks(CurveUnit unit, double most, int count);

// Round numbers around [low, high], both over 0: the first is at most low, the last at least high.
// About `count` of them at most have a label.
std::vector<CurveMark> logarithmic_marks(CurveUnit unit, double low, double high, int count);

// One axis: `low` is at pixel `start`, `high` at pixel `end`.
struct CurveScale {
  double low = 0, high = 1;
  double start = 0, end = 1;
  bool logarithmic = false;
  [[nodiscard]] double at(double value) const;
};

}  // namespace fpdt
