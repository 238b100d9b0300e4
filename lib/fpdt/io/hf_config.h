// Hugging Face config.json, both directions.
//
// A key of theirs that bears meaning is honoured or refused, never skipped: an ignored rope_scaling
// trains a different model without a word. Families read: llama, mistral, qwen2,
// qwen3, gpt2, gpt_neox.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/model.h"

namespace fpdt {

// The families of weight names and configs that we read and write.
enum class HfFamily : std::uint8_t { llama, gpt2, gpt_neox };

// The family whose mathematics equal the model's; InputError when there is none.
HfFamily hf_family(const ModelSpec& model);

// `notes` receives what was ignored and why. InputError with all findings otherwise.
ModelSpec parse_hf_config(std::string_view text, std::string_view file_name,
                          std::vector<std::string>& notes);

// A config.json that transformers loads as the same model.
std::string hf_config_json(const ModelSpec& model);

}  // namespace fpdt
