// Rotary embedding, pair by pair.
#include "fpdt/reference/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt::reference {
namespace {

// Llama 3.1, transformers/modeling_rope_utils.py, _compute_llama3_parameters.
double llama3_scaled(double frequency, const RotarySpec& rotary) {
  const double turns =
      static_cast<double>(rotary.original_positions) * frequency / (2 * std::numbers::pi);
  if (turns > rotary.high_frequency_factor) return frequency;
  if (turns < rotary.low_frequency_factor) return frequency / rotary.factor;
  const double smooth = (turns - rotary.low_frequency_factor) /
                        (rotary.high_frequency_factor - rotary.low_frequency_factor);
  return (1 - smooth) * frequency / rotary.factor + smooth * frequency;
}

// The pair, as a real number, that turns `turns` times in the original positions.
double yarn_pair(double turns, const RotarySpec& rotary, double dimensions) {
  const double wavelength = static_cast<double>(rotary.original_positions) / turns;
  return dimensions * std::log(wavelength / (2 * std::numbers::pi)) / (2 * std::log(rotary.theta));
}

// transformers/modeling_rope_utils.py, _compute_yarn_parameters.
double yarn_scaled(double frequency, const RotarySpec& rotary, std::int64_t pair,
                   double dimensions) {
  double first = yarn_pair(rotary.high_frequency_factor, rotary, dimensions);
  double last = yarn_pair(rotary.low_frequency_factor, rotary, dimensions);
  if (rotary.scaling == RotaryScaling::yarn) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(0.0, first);
  last = std::min(dimensions - 1, last);
  if (first == last) last += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return ramp * frequency / rotary.factor + (1 - ramp) * frequency;
}

// Ding et al., arXiv 2402.13753; transformers/modeling_rope_utils.py, _compute_longrope_parameters.
double longrope_scaled(double frequency, const RotarySpec& rotary, std::int64_t pair,
                       std::int64_t tokens) {
  const bool is_long = tokens > rotary.original_positions;
  return frequency / (is_long ? rotary.long_factors : rotary.short_factors)[index(pair)];
}

double scaled(double frequency, const RotarySpec& rotary, std::int64_t pair,
              std::int64_t rotary_dim, std::int64_t tokens) {
  switch (rotary.scaling) {
    case RotaryScaling::llama3:
      return llama3_scaled(frequency, rotary);
    case RotaryScaling::linear:
      return frequency / rotary.factor;
    case RotaryScaling::yarn:
    case RotaryScaling::yarn_exact:
      return yarn_scaled(frequency, rotary, pair, static_cast<double>(rotary_dim));
    case RotaryScaling::longrope:
      return longrope_scaled(frequency, rotary, pair, tokens);
  }
  return frequency;
}

}  // namespace

std::vector<double> rotary_frequencies(const RotarySpec& rotary, std::int64_t rotary_dim,
                                       std::int64_t tokens) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(rotary_dim);
    const double frequency = std::pow(rotary.theta, -exponent);
    const bool plain = rotary.factor == 1 && rotary.scaling != RotaryScaling::longrope;
    frequencies.push_back(plain ? frequency : scaled(frequency, rotary, i / 2, rotary_dim, tokens));
  }
  return frequencies;
}

void rotate(Matrix& qkv, const std::vector<std::int32_t>& documents, HeadLayout layout,
            const std::vector<double>& frequencies, Turn turn, double magnitude) {
  const std::size_t pairs = frequencies.size();
  FPDT_ASSERT(2 * pairs <= layout.head_dim && qkv.size() == documents.size() * layout.width());
  for (std::size_t t = 0; t < documents.size(); ++t) {
    const double position = static_cast<double>(t - size(documents[t]));
    for (std::size_t head = 0; head < layout.heads + layout.kv_heads; ++head) {
      double* x = &qkv[t * layout.width() + head * layout.head_dim];
      for (std::size_t i = 0; i < pairs; ++i) {
        const double angle = (turn == Turn::forward ? 1 : -1) * position * frequencies[i];
        const double a = x[i];
        const double b = x[i + pairs];
        x[i] = magnitude * (a * std::cos(angle) - b * std::sin(angle));
        x[i + pairs] = magnitude * (b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }
}

}  // namespace fpdt::reference
