// Reads and writes the config.json of Hugging Face.
//
// A key with a meaning is honoured or refused, never skipped: ignoring rope_scaling would silently
// train a different model. Families: llama, mistral, qwen2, qwen3, phi3, gemma2, gemma3, mixtral,
// qwen3_moe, olmoe, minimax_m2, glm4_moe, olmo2, olmo3, gpt_oss, gpt2, gpt_neox.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/model.h"

namespace fpdt {

// The longest config.json that is read.
inline constexpr std::int64_t kConfigBytesMax = 1 << 20;

// Families of weight names and configs that are read and written.
enum class HfFamily : std::uint8_t {
  llama,
  phi3,
  gemma2,
  gemma3,
  mixtral,
  qwen3_moe,
  olmoe,
  minimax_m2,
  glm4_moe,
  olmo2,
  olmo3,
  gpt_oss,
  gpt2,
  gpt_neox
};

// Of a config of OLMo 3 that says nothing else.
inline constexpr double kOlmo3Theta = 5e5;

// The family whose mathematics equals the model's; InputError when there is none.
HfFamily hf_family(const ModelSpec& model);

// `notes` receives the ignored keys and the reasons. InputError with all findings.
ModelSpec parse_hf_config(std::string_view text, std::string_view file_name,
                          std::vector<std::string>& notes);

// Returns a config.json that transformers loads as the same model.
std::string hf_config_json(const ModelSpec& model);

}  // namespace fpdt
