// Parses YAML into a Node: one document of plain maps, lists and scalars, without other features.
#pragma once

#include <string_view>

#include "fpdt/io/tree.h"

namespace fpdt {

// Hand-written files have a few KiB; the parser's memory grows to about 240 times the text.
inline constexpr std::int64_t kYamlBytesMax = 1 << 18;
inline constexpr int kYamlDepthMax = 32;

// Refuses anchors, aliases, tags, further documents, deep nesting, duplicate and non-scalar keys,
// control characters and a byte-order mark. Throws InputError when no tree can be built.
Node parse_yaml(std::string_view text, FileFindings& findings);

}  // namespace fpdt
