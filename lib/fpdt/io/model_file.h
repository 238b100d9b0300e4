// Reads models from models/*.yaml or a Hugging Face config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/model.h"

namespace fpdt {

// Loads a model file (.yaml), a Hugging Face config (.json), or a directory that holds a
// config.json. InputError with every finding when the model is invalid or not supported. `notes`
// receives the ignored keys and the reasons, one sentence each.
ModelSpec load_model(const std::string& path, std::vector<std::string>* notes = nullptr);

// A warning for sequences that are longer than the positions that the weights were trained on, by
// the Hugging Face config (max_position_embeddings); "" otherwise, and for a YAML file.
std::string note_positions(const std::string& path, std::int64_t seq_len);

// The directory of a Hugging Face config that also holds weights; "" where there are none.
std::string weights_beside(const std::string& path);

// Parses the YAML form. `parameters` is required there and must equal parameter_count.
ModelSpec parse_model(std::string_view text, std::string_view file_name);

}  // namespace fpdt
