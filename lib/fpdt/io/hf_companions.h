// What a model's directory holds besides weights and goes with every checkpoint of its training:
// without its tokenizer a saved directory loads in transformers, with an empty one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fpdt {

struct HfCompanions {
  std::string config;                        // config.json; "" for a model that we describe
  std::map<std::string, std::string> files;  // text by name: tokenizer, generation_config.json
  std::vector<std::string> left_out;         // names of files that are too large
};

// Every file of the directory but config.json, weights in any format, hidden files and `not_these`.
HfCompanions read_companions(const std::string& directory,
                             const std::vector<std::string_view>& not_these = {});

// The same config.json, whose dtype is that of the weights beside it: "F32" or "BF16".
std::string config_with_dtype(std::string_view text, std::string_view dtype);

}  // namespace fpdt
