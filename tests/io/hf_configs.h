// Reads the texts of config.json files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/hf_config.h"

#include "scratch.h"

namespace fpdt::test {

inline constexpr std::string_view kLlama31 =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "num_hidden_layers": 32, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "vocab_size": 128256,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";

inline ModelSpec parsed(std::string_view text) {
  std::vector<std::string> notes;
  return parse_hf_config(text, "config.json", notes);
}

inline std::string config_error(std::string_view text) {
  return input_error([&] { static_cast<void>(parsed(text)); });
}

}  // namespace fpdt::test
