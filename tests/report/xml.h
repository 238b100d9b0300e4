// Whether a text is well-formed XML, for the subset that the SVG writer uses.
#pragma once

#include <string>
#include <string_view>

namespace fpdt::test {

// What is wrong; "" if it is well-formed.
std::string xml_error(std::string_view text);

}  // namespace fpdt::test
