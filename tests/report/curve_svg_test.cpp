// Curves: what is drawn and where, and what is left out.
#include "fpdt/report/curve_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/plan/methods/method.h"
#include "fpdt/report/curve_html.h"
#include "fpdt/report/palette.h"
#include "fpdt/report/theme.h"

#include "xml.h"

namespace fpdt {
namespace {

using test::count, test::has;

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

// Two curves that end, each with a cross, a row and a reason.
CurvePicture ending_picture() {
  CurvePicture picture = picture_of(CurveUnit::percent, {0.5, 0.4});
  CurvePanel& panel = picture.panels.front();
  panel.reach = "Longest";
  panel.series.push_back(series("hollow", {0.5, 0.4}));
  panel.series.back().stroke = CurveStroke::broken;
  panel.series.push_back(series("main", {0.6, 0.6, 0.6, 0.6}));
  panel.series.back().stroke = CurveStroke::thick;
  for (std::size_t k = 0; k < 2; ++k) {
    panel.series[k].values.resize(2);
    panel.series[k].color = 0;
    panel.series[k].end = CurveEnd{2, "out of memory: device"};
  }
  return picture;
}

// The centres of the crosses, without the paper around them.
std::vector<Dot> crosses(const std::string& svg) {
  const std::regex cross(
      "d=\"M([0-9.]+) ([0-9.]+)m-5 -5l10 10m0 -10l-10 10\"[^>]* stroke-width=\"3\"");
  std::vector<Dot> all;
  for (std::sregex_iterator it(svg.begin(), svg.end(), cross), end; it != end; ++it) {
    all.push_back({std::strtod((*it)[1].str().c_str(), nullptr),
                   std::strtod((*it)[2].str().c_str(), nullptr)});
  }
  return all;
}

TEST(CurveSvg, ACurveThatEndsHasACrossAndARow) {
  const CurvePicture picture = ending_picture();
  const std::string svg = curve_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_TRUE(has(svg, ">Longest<"));
  EXPECT_TRUE(has(svg, "4K, hollow: out of memory: device"));
  EXPECT_EQ(count(svg, ">out of memory: device<"), 2U);
  // Two in the plot, which do not touch although both curves end at one height, and two in rows.
  const std::vector<Dot> all = crosses(svg);
  ASSERT_EQ(all.size(), 4U);
  constexpr double kWide = 16;
  for (const Dot& one : all) EXPECT_EQ(one.x, all.front().x);
  EXPECT_GE(std::abs(all[0].y - all[1].y), kWide);
  // Nor do they touch a point of another curve at that place.
  const std::regex point("d=\"M([0-9.]+) ([0-9.]+)m-4.5");
  for (std::sregex_iterator it(svg.begin(), svg.end(), point), end; it != end; ++it) {
    if (std::strtod((*it)[1].str().c_str(), nullptr) != all.front().x) continue;
    const double y = std::strtod((*it)[2].str().c_str(), nullptr);
    for (const Dot& one : all) EXPECT_GE(std::abs(one.y - y), kWide);
  }
}

// A curve without any value has its cross in its row alone: in the plot it would look like a value.
TEST(CurveSvg, ACurveThatNeverBeginsIsMarkedBelowThePlot) {
  CurvePicture picture = ending_picture();
  picture.panels.front().series.front().values.clear();
  picture.panels.front().series.front().end = CurveEnd{0, "out of memory: host"};
  const std::string svg = curve_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_EQ(crosses(svg).size(), 3U);
  EXPECT_TRUE(has(svg, "<title>curve: out of memory: host</title>"));
  EXPECT_FALSE(has(svg, "class=\"name\" style=\"fill:#0072B2\">curve<")) << svg;
}

// The limit goes through no label, though it is where the labels of the values would be.
TEST(CurveSvg, LabelsAvoidTheLimit) {
  CurvePicture picture = picture_of(CurveUnit::percent, {0.9, 0.92, 0.94, 0.96});
  picture.panels.front().limit = CurveLimit{1, "budget"};
  const std::string svg = curve_svg(picture);
  std::smatch line;
  ASSERT_TRUE(std::regex_search(
      svg, line, std::regex("y1=\"([0-9.]+)\"[^>]*stroke=\"#C4320A\"[^>]*dasharray=\"7 4\"")));
  const double limit = std::strtod(line[1].str().c_str(), nullptr);
  const std::regex value("y=\"([0-9.]+)\" class=\"value\"");
  std::size_t labels = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), value), end; it != end; ++it, ++labels) {
    const double baseline = std::strtod((*it)[1].str().c_str(), nullptr);
    EXPECT_TRUE(baseline < limit - 2 || baseline - 10 > limit + 2) << baseline << " " << limit;
  }
  EXPECT_EQ(labels, 4U);
}

// Where a label has room nowhere, it covers the limit rather than a curve: above the second point
// is the limit, below it the other curve, and on both sides its own.
TEST(CurveSvg, LabelsCoverTheLimitRatherThanACurve) {
  CurvePicture picture = picture_of(CurveUnit::percent, {0.87, 0.949, 0.985, 0.95, 0.98, 0.99});
  picture.places = {{1, "1K", ""}, {2, "2K", ""},   {4, "4K", ""},
                    {8, "8K", ""}, {16, "16K", ""}, {32, "32K", ""}};
  picture.panels.front().series.push_back(series("other", {0.72, 0.88, 0.985, 0.95, 0.98, 0.99}));
  picture.panels.front().series.front().values[1]->label = "70.8 GiB";
  picture.panels.front().series.back().values[1]->label = "713 GiB";
  picture.panels.front().limit = CurveLimit{1, "budget"};
  const std::string svg = curve_svg(picture);
  const Dot point = dots(svg, 0)[1];
  std::smatch label;
  ASSERT_TRUE(std::regex_search(svg, label, std::regex("y=\"([0-9.]+)\"[^>]*>70.8 GiB<")));
  EXPECT_LT(std::strtod(label[1].str().c_str(), nullptr), point.y - 5);
}

// What is longer than the picture is wide goes on below.
TEST(CurveSvg, SubtitlesAreWhole) {
  CurvePicture picture = picture_of(CurveUnit::plain, {10, 20, 30, 5});
  const auto top = [&] { return dots(curve_svg(picture), 0).front().y; };
  const double before = top();
  for (int i = 0; i < 40; ++i) picture.subtitle += " several words";
  picture.subtitle += " to the end";
  EXPECT_TRUE(has(curve_svg(picture), "to the end<"));
  EXPECT_GT(top(), before + 30);
}

TEST(CurveSvg, StrokesTellCurvesOfOneColourApart) {
  const std::string svg = curve_svg(ending_picture());
  const std::size_t thick = svg.find("stroke=\"#1F2933\" stroke-width=\"9\"");
  const std::size_t thin = svg.find("stroke=\"#0072B2\" stroke-width=\"2.6\"");
  EXPECT_LT(thick, thin);  // below the others
  EXPECT_NE(thin, std::string::npos);
  EXPECT_TRUE(has(svg, "stroke-dasharray=\"7 5\""));
  EXPECT_TRUE(has(svg, "fill=\"#F7F9FB\" stroke=\"#0072B2\""));  // hollow points
  EXPECT_FALSE(has(curve_svg(picture_of(CurveUnit::plain, {1, 2, 3, 4})), "stroke-dasharray"));
}

// Seven families of two curves each, as many as there are methods.
CurvePicture crowded_picture() {
  CurvePicture picture = picture_of(CurveUnit::percent, {0.5});
  CurvePanel& panel = picture.panels.front();
  panel.reach = "Longest";
  panel.series.clear();
  for (std::size_t k = 0; k < 14; ++k) {
    const std::string family = "family of curves " + std::to_string(k / 2);
    panel.series.push_back(series(family + (k % 2 == 0 ? " published" : " best"), {0.5}));
    panel.series.back().color = k / 2;
    panel.series.back().family = family;
  }
  return picture;
}

// Names stand below each other, inside the picture, however low it is.
TEST(CurveSvg, ManyNamesAreAllReadable) {
  const CurvePicture picture = crowded_picture();
  for (const double height : {0.0, least_height(picture, 1400)}) {
    const std::string svg = curve_svg(picture, {1400, height});
    const std::regex name("y=\"(-?[0-9.]+)\"[^>]* class=\"name\"");
    std::vector<double> all;
    for (std::sregex_iterator it(svg.begin(), svg.end(), name), end; it != end; ++it) {
      all.push_back(std::strtod((*it)[1].str().c_str(), nullptr));
    }
    ASSERT_EQ(all.size(), 14U);
    std::sort(all.begin(), all.end());
    constexpr double kPlotTop = 122;
    constexpr double kLine = 20;
    EXPECT_GT(all.front(), kPlotTop - kLine);
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i] - all[i - 1], kLine);
  }
}

TEST(CurveSvg, RowsOfAFamilyHaveOneName) {
  const std::string svg = curve_svg(crowded_picture());
  EXPECT_EQ(count(svg, ">family of curves 3<"), 1U);
  EXPECT_EQ(count(svg, ">family of curves 3 best<"), 1U);  // beside the plot
}

TEST(CurveSvg, EachMethodHasAColourOfItsOwn) {
  std::set<std::string> light;
  std::set<std::string> dark;
  for (std::size_t k = 0; k < methods().size(); ++k) {
    light.insert(std::string(curve_color(k)));
    dark.insert(curves_in_theme(std::string(curve_color(k)), Theme::dark));
  }
  EXPECT_EQ(light.size(), methods().size());
  EXPECT_EQ(dark.size(), methods().size());
  for (const std::string& color : dark) EXPECT_EQ(light.count(color), 0U) << color;
}

TEST(CurveSvg, HasTheSizeThatIsAskedFor) {
  const CurvePicture picture = ending_picture();
  EXPECT_TRUE(has(curve_svg(picture, {1920, 1080}), "width=\"1920\" height=\"1080\""));
  const double least = least_height(picture, 1920);
  EXPECT_LT(least, 1080);
  EXPECT_EQ(dots(curve_svg(picture, {1920, least}), 0).size(), 3U);  // and the sample of the name
}

TEST(CurveHtml, HoldsThePictureAndItsNumbers) {
  const CurvePicture picture = ending_picture();
  const std::string page = curve_html(picture);
  EXPECT_TRUE(has(page, curve_svg(picture)));
  const std::string table = page.substr(page.find("<table>"));
  EXPECT_EQ(test::xml_error(table.substr(0, table.find("</main>"))), "");
  EXPECT_EQ(count(table, "<tr>"), 4U);
  EXPECT_EQ(count(table, ">60.0 %</td>"), 4U);
  EXPECT_EQ(count(table, "<td class=\"no\">out of memory: device</td>"), 2U);
}

TEST(CurveTheme, LightensCurvesInTheDark) {
  const std::string svg = curve_svg(ending_picture());
  EXPECT_EQ(curves_in_theme(svg, Theme::light), svg);
  const std::string dark = curves_in_theme(svg, Theme::dark);
  for (const char* light : {"#0072B2", "#FFFFFF", "#1F2933"})
    EXPECT_FALSE(has(dark, light)) << light;
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
