// Curves for talks: one to four panels over the same axis, with a range around each curve, a
// limit, and a shade where there is no value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fpdt {

enum class CurveUnit : std::uint8_t { plain, percent, bytes, seconds };  // percent: 1 is 100 %

struct CurveValue {
  double value = 0;
  double low = 0, high = 0;  // the range around the value; both 0: none
  std::string label;         // beside the point; empty: the value in the panel's unit
  std::string more{};        // what else the tooltip says
};

// How a curve is drawn. A broken one has hollow points; a thick one lies below the others and has
// the colour of text.
enum class CurveStroke : std::uint8_t { plain, broken, thick };

// The first place that a curve does not reach, and why.
struct CurveEnd {
  std::size_t place = 0;
  std::string why;
};

struct CurveSeries {
  std::string name;                               // empty: the panel's title is enough
  std::string note;                               // a second, softer line of the legend
  std::vector<std::optional<CurveValue>> values;  // one for each place; empty: a gap in the curve
  CurveStroke stroke = CurveStroke::plain;
  std::optional<std::size_t> color{};  // of which curve; empty: its own
  std::string family{};                // neighbours of one family share the name of their rows
  std::optional<CurveEnd> end{};       // marked with a cross
};

struct CurveLimit {
  double value = 0;
  std::string name;
};

struct CurvePanel {
  std::string title;
  CurveUnit unit = CurveUnit::plain;
  bool logarithmic = false;
  std::vector<CurveSeries> series;
  std::optional<CurveLimit> limit;
  std::string reach{};  // the title of rows below that show how far each curve goes; empty: no rows
};

// A place on the axis below.
struct CurvePlace {
  double at = 0;  // over 0, ascending; matters for logarithmic spacing
  std::string label;
  std::string obstacle;  // why there is no value, such as "does not fit: host"; else empty
};

struct CurvePicture {
  std::string title;
  std::string subtitle;
  std::string axis;          // what the places differ in
  bool logarithmic = false;  // places stand by the logarithm of `at`; else evenly
  std::vector<CurvePlace> places;
  std::vector<CurvePanel> panels;
  std::string range;                // the meaning of the shades around curves; empty: not stated
  std::optional<std::size_t> mark;  // a place to point at
  std::string mark_name;
};

// In pixels. A height of 0 is what the panels need.
struct CurveSize {
  double width = 1400;
  double height = 0;
};
// The least height at that width, which leaves room for the plots.
double least_height(const CurvePicture& picture, double width);

std::string curve_svg(const CurvePicture& picture, const CurveSize& size = {});

}  // namespace fpdt
