// Whether a text is well-formed XML, for the subset that the SVG writer uses, and what it has.
#pragma once

#include <string>
#include <string_view>

namespace fpdt::test {

// What is wrong; "" if it is well-formed.
std::string xml_error(std::string_view text);

// How often a text has a part.
inline std::size_t count(std::string_view text, std::string_view part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++times;
  return times;
}
inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace fpdt::test
