// Models from models/*.yaml or from a Hugging Face config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/model.h"

namespace fpdt {

// A model file (.yaml), a Hugging Face config (.json), or a directory that holds a config.json.
// InputError with every finding when it describes no model that we can train. `notes` receives what
// was ignored and why, one sentence each.
ModelSpec load_model(const std::string& path, std::vector<std::string>* notes = nullptr);

// What to say of sequences that are longer than a Hugging Face config says that its weights know
// (max_position_embeddings); "" when they are not, and of a YAML file.
std::string note_positions(const std::string& path, std::int64_t seq_len);

// The YAML form. `parameters` is required there and must equal parameter_count.
ModelSpec parse_model(std::string_view text, std::string_view file_name);

}  // namespace fpdt
