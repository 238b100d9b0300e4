// Strategies as YAML: small, editable, and the way to pin a choice.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Keys that are missing take the defaults of the structs. InputError with every finding.
Strategy load_strategy(const std::string& path);
Strategy parse_strategy(std::string_view text, std::string_view file_name);

// Every field, in the order of the structs; parse_strategy gives the same strategy back.
std::string print_strategy(const Strategy& strategy);

}  // namespace fpdt
