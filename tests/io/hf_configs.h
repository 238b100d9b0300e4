// Reads the texts of config.json files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/hf_config.h"

#include "scratch.h"

namespace fpdt::test {

inline ModelSpec parsed(std::string_view text) {
  std::vector<std::string> notes;
  return parse_hf_config(text, "config.json", notes);
}

inline std::string config_error(std::string_view text) {
  return input_error([&] { static_cast<void>(parsed(text)); });
}

}  // namespace fpdt::test
