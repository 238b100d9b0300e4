// Curves: what is drawn and where, and what is left out.
#include "fpdt/report/curve_svg.h"

#include <cmath>
#include <cstdlib>
#include <regex>

#include <gtest/gtest.h>

#include "fpdt/report/palette.h"

#include "xml.h"

namespace fpdt {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}
bool has(const std::string& text, const std::string& part) { return count(text, part) > 0; }

// The positions of a curve's points, in drawing order.
struct Dot {
  double x = 0, y = 0;
};
std::vector<Dot> dots(const std::string& svg, std::size_t curve) {
  const std::regex dot("d=\"M([0-9.]+) ([0-9.]+)m-4.5 [^\"]*\" fill=\"(#[0-9A-F]+)\"");
  std::vector<Dot> all;
  for (std::sregex_iterator it(svg.begin(), svg.end(), dot), end; it != end; ++it) {
    if ((*it)[3].str() == curve_color(curve)) {
      all.push_back({std::strtod((*it)[1].str().c_str(), nullptr),
                     std::strtod((*it)[2].str().c_str(), nullptr)});
    }
  }
  return all;
}

CurveSeries series(const std::string& name, const std::vector<double>& values) {
  CurveSeries one{name, "", {}};
  for (const double value : values) {
    one.values.push_back(value > 0 ? std::optional(CurveValue{value, 0, 0, ""}) : std::nullopt);
  }
  return one;
}

// Four places; one panel with one curve.
CurvePicture picture_of(CurveUnit unit, const std::vector<double>& values) {
  CurvePicture picture;
  picture.title = "tiny & <small>";
  picture.subtitle = "one curve";
  picture.axis = "tokens";
  picture.places = {{1, "1K", ""}, {2, "2K", ""}, {4, "4K", ""}, {16, "16K", ""}};
  picture.panels = {{"A panel", unit, false, {series("curve", values)}, {}}};
  return picture;
}

TEST(CurveSvg, IsWellFormedAndSaysWhatItShows) {
  const CurvePicture picture = picture_of(CurveUnit::percent, {0.5, 0.25, 0.123, 0.4});
  const std::string svg = curve_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  for (const char* text : {"tiny &amp; &lt;small&gt;", ">A panel<", ">curve<", ">tokens<", ">16K<",
                           ">12.3 %<", ">50.0 %<", "2K, curve: 25.0 %"}) {
    EXPECT_TRUE(has(svg, text)) << text;
  }
  EXPECT_EQ(svg, curve_svg(picture));
}

TEST(CurveSvg, MoreIsHigherInProportion) {
  const auto points = dots(curve_svg(picture_of(CurveUnit::plain, {10, 20, 30, 5})), 0);
  ASSERT_EQ(points.size(), 4U);
  constexpr double kTenth = 0.11;  // coordinates have one decimal: two roundings
  EXPECT_NEAR(points[0].y - points[1].y, points[1].y - points[2].y, kTenth);
  EXPECT_NEAR(points[3].y - points[0].y, (points[0].y - points[1].y) / 2, kTenth);
}

TEST(CurveSvg, LogarithmsSpaceByRatios) {
  CurvePicture picture = picture_of(CurveUnit::seconds, {1, 10, 100, 1000});
  const auto even = dots(curve_svg(picture), 0);
  picture.logarithmic = true;
  picture.panels.front().logarithmic = true;
  const std::string svg = curve_svg(picture);
  const auto points = dots(svg, 0);
  ASSERT_EQ(points.size(), 4U);
  ASSERT_EQ(even.size(), 4U);
  constexpr double kTenth = 0.21;  // four roundings to one decimal, half a unit each
  EXPECT_NEAR(even[3].x - even[2].x, even[1].x - even[0].x, kTenth);
  EXPECT_NEAR(points[3].x - points[2].x, 2 * (points[1].x - points[0].x), kTenth);
  EXPECT_NEAR(points[0].y - points[1].y, points[2].y - points[3].y, kTenth);
  for (const char* mark : {">1 s<", ">10 s<", ">1 min<", ">10 min<"}) {
    EXPECT_TRUE(has(svg, mark)) << mark;
  }
}

TEST(CurveSvg, MissingPointsBreakTheCurveAndAreShaded) {
  CurvePicture picture = picture_of(CurveUnit::plain, {10, 0, 30, 5});
  const auto curves = [&] { return count(curve_svg(picture), "stroke-width=\"2.6\""); };
  EXPECT_EQ(curves(), 2U);
  EXPECT_EQ(dots(curve_svg(picture), 0).size(), 3U);
  EXPECT_FALSE(has(curve_svg(picture), "does not fit"));
  picture.places[1].obstacle = "does not fit: device";
  picture.panels.push_back(picture.panels.front());
  // Named once, but shaded in every panel.
  EXPECT_EQ(count(curve_svg(picture), ">does not fit: device<"), 1U);
  EXPECT_EQ(count(curve_svg(picture), "fill-opacity=\"0.08\""), 2U);
  // Neighbours with the same obstacle share one shade; a different obstacle has its own.
  picture.places[2].obstacle = picture.places[1].obstacle;
  picture.places[3].obstacle = "does not fit: host";
  EXPECT_EQ(count(curve_svg(picture), "fill-opacity=\"0.08\""), 4U);
}

TEST(CurveSvg, RangesAreShadedOnlyWhereGiven) {
  CurvePicture picture = picture_of(CurveUnit::plain, {10, 20, 30, 5});
  EXPECT_FALSE(has(curve_svg(picture), "fill-opacity=\"0.15\""));
  for (auto& value : picture.panels.front().series.front().values) {
    value->low = 0.5 * value->value;
    value->high = 4 * value->value;
  }
  EXPECT_EQ(count(curve_svg(picture), "fill-opacity=\"0.15\""), 1U);
  picture.range = "slow to fast";
  EXPECT_TRUE(has(curve_svg(picture), ">slow to fast<"));
  // The plot reaches to the end of the range: 120, not 30.
  EXPECT_TRUE(has(curve_svg(picture), ">120<") || has(curve_svg(picture), ">100<"));
}

TEST(CurveSvg, LimitsStandInThePlotOrAboveIt) {
  CurvePicture picture = picture_of(CurveUnit::bytes, {1 << 30, 2e9, 3e9, 4e9});
  picture.panels.front().limit = CurveLimit{5e9, "capacity 5 GB"};
  const std::string near = curve_svg(picture);
  EXPECT_TRUE(has(near, ">capacity 5 GB<"));
  EXPECT_TRUE(has(near, "stroke-dasharray=\"7 4\""));
  EXPECT_TRUE(has(near, ">1.00 GiB<"));
  picture.panels.front().limit->value = 5e12;
  EXPECT_TRUE(has(curve_svg(picture), ">▲ capacity 5 GB<"));
  EXPECT_FALSE(has(curve_svg(picture), "stroke-dasharray=\"7 4\""));
}

TEST(CurveSvg, PointsAtOnePlace) {
  CurvePicture picture = picture_of(CurveUnit::plain, {10, 20, 30, 5});
  EXPECT_FALSE(has(curve_svg(picture), ">fastest<"));
  picture.mark = 2;
  picture.mark_name = "fastest";
  EXPECT_TRUE(has(curve_svg(picture), ">fastest<"));
}

TEST(CurveSvg, LabelsNeverTouch) {
  CurvePicture picture = picture_of(CurveUnit::plain, {10, 20, 30, 5});
  picture.panels.front().series.push_back(series("other", {10.1, 20.1, 30.1, 5.1}));
  EXPECT_EQ(count(curve_svg(picture), "class=\"value\""), 8U);
  picture.places.clear();
  picture.panels.front().series = {series("crowd", std::vector<double>(200, 7))};
  for (int i = 0; i < 200; ++i) picture.places.push_back({1.0 + i, "place", ""});
  EXPECT_LT(count(curve_svg(picture), "class=\"value\""), 60U);
}

// Nothing at all, one place, one value, no value above zero.
TEST(CurveSvg, DrawsWhatLittleThereIs) {
  EXPECT_EQ(test::xml_error(curve_svg({})), "");
  for (const CurveUnit unit :
       {CurveUnit::plain, CurveUnit::percent, CurveUnit::bytes, CurveUnit::seconds}) {
    for (const bool logarithmic : {false, true}) {
      CurvePicture picture = picture_of(unit, {});
      picture.logarithmic = picture.panels.front().logarithmic = logarithmic;
      EXPECT_EQ(test::xml_error(curve_svg(picture)), "");
      picture.panels.front().series.front().values = {CurveValue{}};
      EXPECT_EQ(test::xml_error(curve_svg(picture)), "");
      EXPECT_FALSE(has(curve_svg(picture), "nan"));
      picture.places.resize(1);
      EXPECT_EQ(test::xml_error(curve_svg(picture)), "");
    }
  }
}

}  // namespace
}  // namespace fpdt
