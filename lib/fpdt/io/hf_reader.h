// The keys of one config.json. Each `value`, `require` or `dropout` marks its key as understood, so
// that unknown keys can be reported at the end. Internal to the Hugging Face readers.
//
// A key that equals its class default may be absent, so every read passes the default of the class
// (transformers configuration_<family>.py). `null` counts as absent, as in transformers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/tree.h"
#include "fpdt/spec/model.h"

namespace fpdt {

class ConfigReader {
 public:
  ConfigReader(const Node& root, FileFindings& findings, std::vector<std::string>& notes)
      : root_(root), fields_(root, "", findings), notes_(notes) {}

  const Node* find(std::string_view key) {
    const Node* node = fields_.find(key);
    return node == nullptr || node->kind == NodeKind::null ? nullptr : node;
  }
  // Whether the key exists, even with null.
  [[nodiscard]] bool has(std::string_view key) const { return fields_.has(key); }
  template <class T>
  T value(std::string_view key, T standard) {
    if (find(key) != nullptr) fields_.optional(key, standard);
    return standard;
  }
  // The same for a size, or a value that changes sizes. Notes when the default is taken.
  template <class T>
  T size(std::string_view key, T standard) {
    if (find(key) == nullptr) note_default(key, format_default(standard));
    return value(key, standard);
  }
  void refuse(std::string_view key, std::string_view why);
  // A switch for which only one setting is supported.
  void require(std::string_view key, bool wanted, bool standard);
  // Refuses dropout. GPT-2's class default of 0.1 is only noted, since nobody trains long sequences
  // with it.
  void dropout(std::string_view key, double standard);
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // Refuses keys that would make it another model, and notes others that no reader asked for.
  void done(std::string_view type);

  [[nodiscard]] const Node& root() const { return root_; }
  FileFindings& findings() { return fields_.findings(); }

 private:
  static std::string format_default(std::int64_t value) { return std::to_string(value); }
  static std::string format_default(bool value) { return value ? "true" : "false"; }
  void note_default(std::string_view key, const std::string& value);
  void check_code(std::string_view type);

  const Node& root_;
  Fields fields_;
  std::string defaults_;  // "hidden_size 4096, vocab_size 32000"
  std::vector<std::string>& notes_;
};

// The keys of the text, where a config is of a model for images as well (gemma3); else null.
inline const Node* text_config(const Node& root) { return root.find("text_config"); }

// Keys of rotary embeddings in both generations: rope_theta + rope_scaling, and rope_parameters
// since transformers 5. GPT-NeoX uses its own names for the first.
struct RotaryKeys {
  std::string_view theta = "rope_theta";
  std::string_view fraction = "partial_rotary_factor";
  double standard_fraction = 1;
  double standard_theta = 10000;
};
RotarySpec read_rotary(ConfigReader& config, const RotaryKeys& keys);
// longrope's attention factor where a config gives none: for sequences `ratio` times as long as the
// original ones (Ding et al., arXiv 2402.13753, section 3.4).
double longrope_magnitude(double ratio, std::int64_t original_positions);
// That of layers of one type, such as "full_attention", where rope_parameters has a map for each.
std::optional<RotarySpec> read_rotary_of(ConfigReader& config, std::string_view layer_type,
                                         RotarySpec standard);

// Windows of a model's layers, of the llama families and of those whose windows repeat: see their
// definitions. They set the kinds of the model.
void read_windows(ConfigReader& config, std::string_view type, ModelSpec& model);
bool read_periodic_windows(ConfigReader& config, std::int64_t standard, std::int64_t each,
                           ModelSpec& model);

// transformers adds the loss that balances experts only where output_router_logits asks for it.
void read_balance(ConfigReader& config, ModelSpec& model, double standard = 0.001);
// The experts of Mixtral, Qwen, OLMoE and MiniMax, in all layers.
void read_experts(ConfigReader& config, std::string_view type, ModelSpec& model);
// The layers of GLM after the first dense ones: experts of a width of their own, chosen by sigmoids
// among all of them, and what is shared. Precondition: the model has rotary frequencies.
void read_glm_experts(ConfigReader& config, ModelSpec& model);

}  // namespace fpdt
