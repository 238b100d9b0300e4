// What the finder of a model's Hugging Face family and the printer of its config both ask. Internal
// to them.
#pragma once

#include <algorithm>

#include "fpdt/spec/model.h"

namespace fpdt {

// The window of layers that see one, or 0.
inline std::int64_t window_of(const ModelSpec& model) {
  return std::max(model.kinds.front().window, model.kinds.back().window);
}

inline bool is_longrope(const RotarySpec& rotary) {
  return rotary.scaling == RotaryScaling::longrope;
}
inline bool is_yarn(const RotarySpec& rotary) {
  return rotary.scaling == RotaryScaling::yarn || rotary.scaling == RotaryScaling::yarn_exact;
}

}  // namespace fpdt
