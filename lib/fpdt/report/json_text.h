// Text as a JSON string. Internal to report.
#pragma once

#include <string>
#include <string_view>

namespace fpdt {

// The text in quotes. "<" is escaped, so that the result can stand in a script of an HTML page.
std::string quote_json(std::string_view text);

}  // namespace fpdt
