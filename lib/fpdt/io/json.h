// Parses JSON into a Node, strictly: unique keys, bounded depth, exact integers, no byte-order
// mark.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/io/tree.h"

namespace fpdt {

inline constexpr int kJsonDepthMax = 64;

// A value takes some 100 bytes in memory, but as little as two in a file. This bounds the memory
// that a hostile file of an accepted size can take.
inline constexpr std::int64_t kJsonValuesMax = 1 << 18;

// Throws InputError when the text is not JSON or holds more values; duplicate keys are findings.
Node parse_json(std::string_view text, FileFindings& findings,
                std::int64_t values_max = kJsonValuesMax);

// Prints the tree without white space, keys in their order.
std::string json_text(const Node& node);

// A quoted JSON string literal.
std::string json_string(std::string_view text);

}  // namespace fpdt
