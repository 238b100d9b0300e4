// Text in the gzip format (RFC 1952), which ui.perfetto.dev opens like plain text.
#pragma once

#include <string>
#include <string_view>

namespace fpdt {

// The compressed text. It has no time and no name in it, so the same text gives the same bytes.
std::string gzip(std::string_view text);

}  // namespace fpdt
