// Compares field by field.
#include "fpdt/train/same_model.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/model_file.h"

namespace fpdt {
namespace {

// One line for each field of the mathematics in which the two models differ.
std::string difference(const ModelSpec& ours, const ModelSpec& theirs) {
  std::string text;
  const auto compare = [&](const char* field, const auto& a, const auto& b) {
    if (a != b) text += fmt::format("\n  {}: the schedule has {}, the directory {}", field, a, b);
  };
  compare("layers", ours.layers, theirs.layers);
  compare("hidden", ours.hidden, theirs.hidden);
  compare("heads", ours.heads, theirs.heads);
  compare("kv_heads", ours.kv_heads, theirs.kv_heads);
  compare("head_dim", ours.head_dim, theirs.head_dim);
  compare("feed_forward", ours.feed_forward, theirs.feed_forward);
  compare("vocabulary", ours.vocabulary, theirs.vocabulary);
  compare("norm", word(ours.norm), word(theirs.norm));
  compare("norm_epsilon", ours.norm_epsilon, theirs.norm_epsilon);
  compare("activation", word(ours.activation), word(theirs.activation));
  compare("qkv_bias", ours.qkv_bias, theirs.qkv_bias);
  compare("bias", ours.bias, theirs.bias);
  compare("qk_norm", ours.qk_norm, theirs.qk_norm);
  compare("parallel_residual", ours.parallel_residual, theirs.parallel_residual);
  compare("learned_positions", ours.learned_positions, theirs.learned_positions);
  compare("rotary_dim", ours.rotary_dim(), theirs.rotary_dim());
  compare("tied_embeddings", ours.tied_embeddings, theirs.tied_embeddings);
  if (ours.rotary_dim() == 0) return text;
  compare("rotary.magnitude", ours.rotary.magnitude, theirs.rotary.magnitude);
  compare("rotary.theta", ours.rotary.theta, theirs.rotary.theta);
  compare("rotary.factor", ours.rotary.factor, theirs.rotary.factor);
  if (ours.rotary.factor == 1) return text;
  compare("rotary.scaling", word(ours.rotary.scaling), word(theirs.rotary.scaling));
  if (ours.rotary.scaling == RotaryScaling::linear) return text;
  compare("rotary.low_frequency_factor", ours.rotary.low_frequency_factor,
          theirs.rotary.low_frequency_factor);
  compare("rotary.high_frequency_factor", ours.rotary.high_frequency_factor,
          theirs.rotary.high_frequency_factor);
  compare("rotary.original_positions", ours.rotary.original_positions,
          theirs.rotary.original_positions);
  return text;
}

}  // namespace

void require_same_model(const std::string& path, const ModelSpec& model) {
  const std::string found = difference(model, load_model(path));
  if (!found.empty()) {
    throw InputError(
        fmt::format("{}: holds another model than the schedule trains:{}", path, found));
  }
}

}  // namespace fpdt
