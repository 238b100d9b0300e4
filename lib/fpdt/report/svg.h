// A small writer of SVG. Coordinates are pixels, written to a tenth.
#pragma once

#include <string>
#include <string_view>

namespace fpdt {

// Text as it stands in XML.
std::string escape_xml(std::string_view text);

// Where the text's x is.
enum class Anchor { start, middle, end };

class Svg {
 public:
  // `more` of each element are further attributes, such as "fill-opacity=\"0.5\"".
  void rectangle(double x, double y, double width, double height, std::string_view fill,
                 std::string_view more = "");
  void line(double x1, double y1, double x2, double y2, std::string_view stroke,
            std::string_view more = "");
  // `points` as in the attribute d.
  void path(std::string_view points, std::string_view fill, std::string_view more = "");
  // `style`: names of classes of the style sheet.
  void text(double x, double y, std::string_view text, std::string_view style,
            Anchor anchor = Anchor::start, std::string_view more = "");
  // A tooltip for what is drawn until `end_group`.
  void begin_group(std::string_view title);
  void end_group();

  // The document: white, with a title for readers that see no pictures.
  [[nodiscard]] std::string finish(double width, double height, std::string_view title,
                                   std::string_view style_sheet) const;

 private:
  std::string body_;
};

// A coordinate, to a tenth, without needless zeros.
std::string coordinate(double value);

// About how wide a text is in the fonts of the pictures.
double text_width(std::string_view text, double size);

// At most about `width` wide: the end is cut and marked by an ellipsis.
std::string fit_text(std::string_view text, double size, double width);

}  // namespace fpdt
