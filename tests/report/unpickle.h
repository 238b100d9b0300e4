// A tiny reader of the pickles that memory_snapshot writes, into JSON.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace fpdt::test {

// Throws std::runtime_error on an unknown opcode or a text that ends early.
nlohmann::json unpickle(std::string_view bytes);

}  // namespace fpdt::test
