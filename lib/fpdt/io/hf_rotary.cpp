// rope_scaling and rope_parameters: default, linear, llama3, yarn and longrope.
//
// The formulas follow transformers/modeling_rope_utils.py. Other types (dynamic, proportional, ...)
// are refused by name.
#include <cmath>

#include <fmt/format.h>

#include "fpdt/io/hf_reader.h"

namespace fpdt {

double longrope_magnitude(double ratio, std::int64_t original_positions) {
  if (!(ratio > 1) || original_positions < 2) return 1;
  return std::sqrt(1 + std::log(ratio) / std::log(static_cast<double>(original_positions)));
}

namespace {

// yarn's attention factor when the config does not give it.
double yarn_magnitude(double factor, double mscale, double mscale_all_dim) {
  const auto magnitude = [factor](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  if (mscale != 0 && mscale_all_dim != 0) return magnitude(mscale) / magnitude(mscale_all_dim);
  return magnitude(1);
}

// Reads one map of scaling parameters, under its key.
class ScalingReader {
 public:
  ScalingReader(ConfigReader& config, std::string_view key, const Node& node)
      : config_(config), key_(key), fields_(node, std::string(key), config.findings()) {}

  RotarySpec read(RotarySpec rotary) {
    std::string type = "default";
    fields_.optional("type", type);
    fields_.optional("rope_type", type);
    optional("rope_theta", rotary.theta);
    optional("partial_rotary_factor", rotary.fraction);
    if (type == "llama3") {
      rotary.scaling = RotaryScaling::llama3;
      fields_.required("factor", rotary.factor);
      fields_.required("low_freq_factor", rotary.low_frequency_factor);
      fields_.required("high_freq_factor", rotary.high_frequency_factor);
      read_original(rotary);
    } else if (type == "linear") {
      rotary.scaling = RotaryScaling::linear;
      fields_.required("factor", rotary.factor);
    } else if (type == "yarn") {
      read_yarn(rotary);
    } else if (type == "longrope" || type == "su") {  // its first name
      read_longrope(rotary);
    } else if (type != "default") {
      config_.refuse(key_, fmt::format("rope type \"{}\" is not supported, expected default, "
                                       "linear, llama3, yarn or longrope",
                                       type));
      return rotary;
    }
    fields_.done();
    return rotary;
  }

 private:
  // Reads an optional key; null counts as absent.
  template <class T>
  bool optional(std::string_view key, T& value) {
    const Node* node = fields_.find(key);
    if (node == nullptr || node->kind == NodeKind::null) return false;
    fields_.optional(key, value);
    return true;
  }
  void read_yarn(RotarySpec& rotary) {
    rotary.scaling = RotaryScaling::yarn;
    rotary.low_frequency_factor = 1;
    rotary.high_frequency_factor = 32;
    double mscale = 0;
    double mscale_all_dim = 0;
    bool truncate = true;
    fields_.required("factor", rotary.factor);
    optional("beta_slow", rotary.low_frequency_factor);
    optional("beta_fast", rotary.high_frequency_factor);
    optional("mscale", mscale);
    optional("mscale_all_dim", mscale_all_dim);
    rotary.magnitude = yarn_magnitude(rotary.factor, mscale, mscale_all_dim);
    optional("attention_factor", rotary.magnitude);
    if (optional("truncate", truncate) && !truncate) rotary.scaling = RotaryScaling::yarn_exact;
    read_original(rotary);
  }
  void read_longrope(RotarySpec& rotary) {
    rotary.scaling = RotaryScaling::longrope;
    fields_.required("short_factor", rotary.short_factors);
    fields_.required("long_factor", rotary.long_factors);
    read_original(rotary);
    double ratio =
        static_cast<double>(config_.value("max_position_embeddings", rotary.original_positions)) /
        static_cast<double>(rotary.original_positions);
    optional("factor", ratio);
    rotary.magnitude = longrope_magnitude(ratio, rotary.original_positions);
    optional("attention_factor", rotary.magnitude);
  }
  // The original context length: given beside the map, in it, or as all positions.
  void read_original(RotarySpec& rotary) {
    constexpr std::string_view key = "original_max_position_embeddings";
    const bool beside = config_.find(key) != nullptr;
    const bool inside = optional(key, rotary.original_positions);
    if (beside) rotary.original_positions = config_.value(key, rotary.original_positions);
    if (beside || inside) return;
    if (config_.find("max_position_embeddings") == nullptr) {
      return fields_.required(key, rotary.original_positions);
    }
    rotary.original_positions = config_.value("max_position_embeddings", rotary.original_positions);
  }

  ConfigReader& config_;
  std::string_view key_;
  Fields fields_;
};

}  // namespace

std::optional<RotarySpec> read_rotary_of(ConfigReader& config, std::string_view layer_type,
                                         RotarySpec standard) {
  const Node* parameters = config.find("rope_parameters");
  const Node* own = parameters == nullptr ? nullptr : parameters->find(layer_type);
  if (own == nullptr || own->kind == NodeKind::null) return std::nullopt;
  return ScalingReader(config, "rope_parameters", *own).read(standard);
}

RotarySpec read_rotary(ConfigReader& config, const RotaryKeys& keys) {
  RotarySpec older;
  older.theta = config.value(keys.theta, keys.standard_theta);
  older.fraction = config.value(keys.fraction, keys.standard_fraction);
  const Node* scaling = config.find("rope_scaling");
  if (scaling != nullptr) older = ScalingReader(config, "rope_scaling", *scaling).read(older);
  const Node* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return older;
  RotarySpec standard;
  standard.theta = keys.standard_theta;
  standard.fraction = keys.standard_fraction;
  const RotarySpec newer = ScalingReader(config, "rope_parameters", *parameters).read(standard);
  const bool theta_disagrees = config.find(keys.theta) != nullptr && older.theta != newer.theta;
  const bool fraction_disagrees =
      config.find(keys.fraction) != nullptr && older.fraction != newer.fraction;
  RotarySpec merged = older;
  merged.theta = newer.theta;
  merged.fraction = newer.fraction;
  if (theta_disagrees || fraction_disagrees || (scaling != nullptr && !(merged == newer))) {
    config.refuse("rope_parameters",
                  fmt::format("disagrees with {}, rope_scaling or {}", keys.theta, keys.fraction));
  }
  return newer;
}

}  // namespace fpdt
