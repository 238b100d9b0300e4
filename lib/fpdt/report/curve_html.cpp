// The picture as in a file of its own, and below it a table for each panel.
#include "fpdt/report/curve_html.h"

#include <fmt/format.h>

#include "fpdt/report/curve_scale.h"
#include "fpdt/report/svg.h"

namespace fpdt {
namespace {

constexpr std::string_view kPageStyle =
    "body{margin:0;background:#FFFFFF;color:#1F2933;font-family:Inter,-apple-system,'Segoe UI',"
    "Roboto,'Helvetica Neue',Arial,sans-serif}main{max-width:1400px;margin:0 auto}"
    "svg{width:100%;height:auto}table{border-collapse:collapse;margin:0 28px 28px;"
    "font-size:14px;font-variant-numeric:tabular-nums}caption{text-align:left;font-weight:600;"
    "padding:8px 0}th,td{padding:5px 12px;border-bottom:1px solid #D9DEE4;text-align:right}"
    "th:first-child{text-align:left}.no{color:#C4320A}";

std::string cell_text(const CurvePicture& picture, const CurvePanel& panel,
                      const CurveSeries& series, std::size_t place) {
  if (place < series.values.size() && series.values[place]) {
    const CurveValue& value = *series.values[place];
    const std::string label =
        value.label.empty() ? format_value(panel.unit, value.value) : value.label;
    return fmt::format("<td title=\"{}\">{}</td>", escape_xml(label + value.more),
                       escape_xml(label));
  }
  const bool ends = series.end && series.end->place == place;
  const std::string& why = ends ? series.end->why : picture.places[place].obstacle;
  return why.empty() ? "<td></td>" : fmt::format("<td class=\"no\">{}</td>", escape_xml(why));
}

std::string table_text(const CurvePicture& picture, const CurvePanel& panel) {
  std::string text = fmt::format("<table><caption>{}</caption>\n<tr><th>{}</th>",
                                 escape_xml(panel.title), escape_xml(picture.axis));
  for (const CurvePlace& place : picture.places) {
    text += fmt::format("<th>{}</th>", escape_xml(place.label));
  }
  text += "</tr>\n";
  for (const CurveSeries& series : panel.series) {
    text += fmt::format("<tr><th>{}</th>", escape_xml(series.name));
    for (std::size_t i = 0; i < picture.places.size(); ++i) {
      text += cell_text(picture, panel, series, i);
    }
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

}  // namespace

std::string curve_html(const CurvePicture& picture) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>{}</title>\n"
      "<style>{}</style></head>\n<body><main>\n{}",
      escape_xml(picture.title), kPageStyle, curve_svg(picture));
  for (const CurvePanel& panel : picture.panels) text += table_text(picture, panel);
  return text + "</main></body></html>\n";
}

}  // namespace fpdt
