// Prints SVG elements.
#include "fpdt/report/svg.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace fpdt {

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML does not allow control characters.
        escaped += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return escaped;
}

std::string coordinate(double value) {
  const auto tenths = static_cast<long long>(std::llround(value * 10));
  if (tenths % 10 == 0) return fmt::format("{}", tenths / 10);
  return fmt::format("{}{}.{}", tenths < 0 ? "-" : "", std::llabs(tenths) / 10,
                     std::llabs(tenths) % 10);
}

double text_width(std::string_view text, double size) {
  double em = 0;
  for (const char c : text) {
    // The second and later bytes of a UTF-8 letter add no width.
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;
    const bool thin = c == 'i' || c == 'l' || c == '.' || c == ',' || c == ' ' || c == 'j' ||
                      c == 't' || c == 'f' || c == '|' || c == ':';
    const bool wide = c == 'm' || c == 'w' || c == 'M' || c == 'W' || c == '%';
    em += thin ? 0.30 : (wide ? 0.86 : 0.57);
  }
  return em * size;
}

std::string fit_text(std::string_view text, double size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + 0.8 * size > width) {
    const auto continues = [&] { return (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80; };
    while (text.size() > 1 && continues()) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return std::string(text) + "…";
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view fill,
                    std::string_view more) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}{}/>\n",
                 coordinate(x), coordinate(y), coordinate(width), coordinate(height), fill,
                 more.empty() ? "" : " ", more);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view stroke,
               std::string_view more) {
  fmt::format_to(std::back_inserter(body_),
                 "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\"{}{}/>\n",
                 coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2), stroke,
                 more.empty() ? "" : " ", more);
}

void Svg::path(std::string_view points, std::string_view fill, std::string_view more) {
  if (points.empty()) return;
  fmt::format_to(std::back_inserter(body_), "<path d=\"{}\" fill=\"{}\"{}{}/>\n", points, fill,
                 more.empty() ? "" : " ", more);
}

void Svg::text(double x, double y, std::string_view text, std::string_view style, Anchor anchor,
               std::string_view more) {
  const char* at = anchor == Anchor::middle ? " text-anchor=\"middle\""
                                            : (anchor == Anchor::end ? " text-anchor=\"end\"" : "");
  fmt::format_to(std::back_inserter(body_),
                 "<text x=\"{}\" y=\"{}\" class=\"{}\"{}{}{}>{}</text>\n", coordinate(x),
                 coordinate(y), style, at, more.empty() ? "" : " ", more, escape_xml(text));
}

void Svg::begin_group(std::string_view title) {
  fmt::format_to(std::back_inserter(body_), "<g><title>{}</title>\n", escape_xml(title));
}

void Svg::end_group() { body_ += "</g>\n"; }

std::string Svg::finish(double width, double height, std::string_view title,
                        std::string_view style_sheet) const {
  const std::string w = coordinate(width);
  const std::string h = coordinate(height);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "viewBox=\"0 0 {} {}\">\n<title>{}</title>\n<style>{}</style>\n"
      "<rect width=\"{}\" height=\"{}\" fill=\"#FFFFFF\"/>\n{}</svg>\n",
      w, h, w, h, escape_xml(title), style_sheet, w, h, body_);
}

}  // namespace fpdt
