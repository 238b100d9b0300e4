// The keys of one config.json: each `value`, `require` or `dropout` marks its key as understood, so
// that what nobody asked for can be told at the end. Internal to the Hugging Face readers.
//
// A key that equals its class default may be absent, so every read has the default of the class
// (transformers configuration_<family>.py). `null` counts as absent, as transformers writes it.
#pragma once

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
  // The key is there, be it null.
  [[nodiscard]] bool has(std::string_view key) const { return fields_.has(key); }
  template <class T>
  T value(std::string_view key, T standard) {
    if (find(key) != nullptr) fields_.optional(key, standard);
    return standard;
  }
  void refuse(std::string_view key, std::string_view why);
  // A switch that must have the one setting that we implement.
  void require(std::string_view key, bool wanted, bool standard);
  // Dropout is refused; GPT-2's class default of 0.1, which nobody trains long sequences with, is
  // noted.
  void dropout(std::string_view key, double standard);
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // Refuses what would make it another model, notes the keys that nobody asked for.
  void done();

  [[nodiscard]] const Node& root() const { return root_; }
  FileFindings& findings() { return fields_.findings(); }

 private:
  const Node& root_;
  Fields fields_;
  std::vector<std::string>& notes_;
};

// Rotary embeddings in both generations of the keys: rope_theta + rope_scaling, and rope_parameters
// since transformers 5. GPT-NeoX has names of its own for the first.
struct RotaryKeys {
  std::string_view theta = "rope_theta";
  std::string_view fraction = "partial_rotary_factor";
  double standard_fraction = 1;
};
RotarySpec read_rotary(ConfigReader& config, const RotaryKeys& keys);

}  // namespace fpdt
