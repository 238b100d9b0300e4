// JSON into a Node, strictly: unique keys, bounded depth, exact integers, no byte-order mark.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/io/tree.h"

namespace fpdt {

inline constexpr int kJsonDepthMax = 64;

// A value takes some 100 bytes in memory, and as little as two in a file: this bounds what a
// hostile text of the size that we read makes of them.
inline constexpr std::int64_t kJsonValuesMax = 1 << 18;

// Throws InputError when the text is not JSON or holds more values; duplicate keys are findings.
Node parse_json(std::string_view text, FileFindings& findings,
                std::int64_t values_max = kJsonValuesMax);

// The tree as text without white space, keys in their order.
std::string json_text(const Node& node);

// A JSON string literal with its quotes.
std::string json_string(std::string_view text);

}  // namespace fpdt
