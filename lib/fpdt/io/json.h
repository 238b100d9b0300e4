// JSON into a Node, strictly: unique keys, bounded depth, exact integers, no byte-order mark.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/io/tree.h"

namespace fpdt {

inline constexpr int kJsonDepthMax = 64;

// A node takes some 100 bytes; this bounds what a hostile text of the size that we read can make of
// them.
inline constexpr std::int64_t kJsonNodesMax = 1 << 20;

// Throws InputError when the text is not JSON; duplicate keys are findings.
Node parse_json(std::string_view text, FileFindings& findings,
                std::int64_t nodes_max = kJsonNodesMax);

// The tree as text without white space, keys in their order.
std::string json_text(const Node& node);

// A JSON string literal with its quotes.
std::string json_string(std::string_view text);

}  // namespace fpdt
