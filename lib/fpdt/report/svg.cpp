// Prints SVG elements.
#include "fpdt/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace fpdt {
namespace {

// Widths of the letters from ' ' to '~' in thousandths of their size, from tables of DejaVu Sans
// and DejaVu Sans Bold. No font that the pictures name has wider ones, so what fits here fits
// everywhere.
constexpr std::array<std::int16_t, 95> kWidths{
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361,  318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,  611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,  635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,  525, 636, 337, 636, 838};
constexpr std::array<std::int16_t, 95> kBoldWidths{
    348,  456, 521, 838, 696, 1002, 872, 306,  457, 457, 523, 838, 380, 415,  380, 365,
    696,  696, 696, 696, 696, 696,  696, 696,  696, 696, 400, 400, 838, 838,  838, 580,
    1000, 774, 762, 734, 830, 683,  683, 821,  837, 372, 372, 775, 637, 995,  837, 850,
    733,  850, 770, 720, 682, 812,  774, 1103, 771, 724, 725, 457, 365, 457,  838, 500,
    500,  675, 716, 593, 716, 678,  435, 716,  712, 343, 343, 665, 343, 1042, 712, 687,
    716,  716, 493, 595, 478, 712,  652, 924,  645, 652, 582, 712, 365, 712,  838};
constexpr std::int64_t kWidest = 1000;  // of all other letters that pictures use

}  // namespace

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

double text_width(std::string_view text, double size, Weight weight) {
  const auto& widths = weight == Weight::bold ? kBoldWidths : kWidths;
  std::int64_t sum = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte <= '~') {
      sum += widths[byte - static_cast<std::size_t>(' ')];
    } else if ((byte & 0xC0) != 0x80) {  // later bytes of a letter add no width
      sum += kWidest;
    }
  }
  return static_cast<double>(sum) * size / 1000;
}

std::string fit_text(std::string_view text, double size, double width, Weight weight) {
  if (text_width(text, size, weight) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size, weight) + size > width) {
    const auto continues = [&] { return (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80; };
    while (text.size() > 1 && continues()) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return std::string(text) + "…";
}

std::vector<std::string> wrap_text(std::string_view text, double size, double width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string longer = line.empty() ? "" : line + " ";
    longer += text.substr(0, space);
    if (!line.empty() && text_width(longer, size) > width) {
      lines.push_back(fit_text(line, size, width));
      longer = text.substr(0, space);
    }
    line = std::move(longer);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  if (!line.empty()) lines.push_back(fit_text(line, size, width));
  return lines;
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
                        std::string_view style_sheet, double scale) const {
  const std::string w = coordinate(width);
  const std::string h = coordinate(height);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "viewBox=\"0 0 {} {}\">\n<title>{}</title>\n<style>{}</style>\n"
      "<rect width=\"{}\" height=\"{}\" fill=\"#FFFFFF\"/>\n{}</svg>\n",
      coordinate(width * scale), coordinate(height * scale), w, h, escape_xml(title), style_sheet,
      w, h, body_);
}

}  // namespace fpdt
