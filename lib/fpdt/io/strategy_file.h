// Strategies as YAML: small, editable files that pin choices.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/spec/choices.h"

namespace fpdt {

// Missing keys take the defaults of the structs. InputError with every finding.
Strategy load_strategy(const std::string& path);
Strategy parse_strategy(std::string_view text, std::string_view file_name,
                        Choices table = choices());

// "file:line:column" of the value of a key, such as "layer_classes[0].keep.q"; the file alone where
// the key stands at its default.
std::string place_of_key(const std::string& path, std::string_view key);

// Prints every key, in the order of the table; parse_strategy reads back the same strategy.
std::string print_strategy(Strategy strategy, Choices table = choices());

}  // namespace fpdt
