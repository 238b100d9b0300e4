// Whether a text is well-formed XML, as far as the SVG writer's output goes.
#pragma once

#include <string>
#include <string_view>

namespace fpdt::test {

// "" when it is; else what is wrong.
std::string xml_error(std::string_view text);

}  // namespace fpdt::test
