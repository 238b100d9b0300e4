// Escapes text for JSON.
#include "fpdt/report/json_text.h"

#include <iterator>

#include <fmt/format.h>

namespace fpdt {

std::string quote_json(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == '<') {
      fmt::format_to(std::back_inserter(quoted), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace fpdt
