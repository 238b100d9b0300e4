// The files of a model's directory other than weights, copied into every checkpoint of its
// training. Without its tokenizer a saved directory would load in transformers with an empty one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fpdt {

struct HfCompanions {
  // config.json; "" for a model from our own YAML form, and where the model is for images as well,
  // since the weights of a checkpoint are those of text.
  std::string config;
  std::map<std::string, std::string> files;  // contents by name: tokenizer, generation_config.json
  std::vector<std::string> left_out;         // names of files that were too many or too large
};

// All files of the directory except config.json, weights in any format, hidden files and
// `not_these`: at most 100, of 64 MiB each and 128 MiB together. InputError for a link that leaves
// the directory.
HfCompanions read_companions(const std::string& directory,
                             const std::vector<std::string_view>& not_these = {});

// Only the config, of a directory to which checkpoints go: its other files are there already.
HfCompanions read_config(const std::string& directory);

// config.json for weights of this dtype, "F32" or "BF16". What is written is not quantised, so it
// says nothing of a quantisation.
std::string config_for_weights(std::string_view text, std::string_view dtype);

}  // namespace fpdt
