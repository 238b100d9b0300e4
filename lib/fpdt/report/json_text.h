// Text as a JSON string. Internal to report.
#pragma once

#include <string>
#include <string_view>

namespace fpdt {

// In quotes; "<" is escaped, so that it may stand within a script of an HTML page.
std::string quote_json(std::string_view text);

}  // namespace fpdt
