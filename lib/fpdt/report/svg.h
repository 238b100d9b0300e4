// A small writer of SVG. Coordinates are pixels, written to a tenth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fpdt {

// Escapes text for XML.
std::string escape_xml(std::string_view text);

// Which point of the text x refers to.
enum class Anchor { start, middle, end };

class Svg {
 public:
  // `more` holds further attributes of the element, such as "fill-opacity=\"0.5\"".
  void rectangle(double x, double y, double width, double height, std::string_view fill,
                 std::string_view more = "");
  void line(double x1, double y1, double x2, double y2, std::string_view stroke,
            std::string_view more = "");
  // `points` has the syntax of the attribute d.
  void path(std::string_view points, std::string_view fill, std::string_view more = "");
  // `style` names classes of the style sheet.
  void text(double x, double y, std::string_view text, std::string_view style,
            Anchor anchor = Anchor::start, std::string_view more = "");
  // Begins a group with a tooltip for everything drawn until `end_group`.
  void begin_group(std::string_view title);
  void end_group();

  // Returns the document: white, with a title for screen readers. `scale`: its pixels for one of
  // the drawing's.
  [[nodiscard]] std::string finish(double width, double height, std::string_view title,
                                   std::string_view style_sheet, double scale = 1) const;

 private:
  std::string body_;
};

// A coordinate to a tenth, without trailing zeros.
std::string coordinate(double value);

enum class Weight { regular, bold };

// The width of a text in the widest font of the pictures; in others it is narrower.
double text_width(std::string_view text, double size, Weight weight = Weight::regular);

// Cuts the text to `width` at most and marks the cut with an ellipsis.
std::string fit_text(std::string_view text, double size, double width,
                     Weight weight = Weight::regular);

// Breaks the text at spaces into lines of at most `width`.
std::vector<std::string> wrap_text(std::string_view text, double size, double width);

}  // namespace fpdt
