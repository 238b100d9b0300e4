// Compares field by field.
#include "fpdt/train/same_model.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/base/error.h"
#include "fpdt/io/model_file.h"

namespace fpdt {
namespace {

// Collects a line for each field in which the two models differ.
struct Difference {
  std::string text;
  template <class T>
  void compare(const std::string& field, const T& ours, const T& theirs) {
    if (ours == theirs) return;
    text.append(fmt::format("\n  {}: the schedule has {}, the directory {}", field, ours, theirs));
  }
};

// The window, the feed-forward and the rotary embedding of a layer.
std::string layer_difference(std::int64_t layer, const ModelSpec& ours, const ModelSpec& theirs) {
  const LayerKind& a = ours.kind_of(layer);
  const LayerKind& b = theirs.kind_of(layer);
  Difference found;
  const auto compare = [&](const char* field, const auto& one, const auto& other) {
    found.compare((ours.kinds.size() > 1 ? fmt::format("layer {}: ", layer) : "") + field, one,
                  other);
  };
  compare("window", a.window, b.window);
  compare("dense_feed_forward", a.dense_feed_forward, b.dense_feed_forward);
  compare("rotary_dim", ours.rotary_dim(a), theirs.rotary_dim(b));
  if (ours.rotary_dim(a) == 0) return found.text;
  compare("rotary.magnitude", a.rotary.magnitude, b.rotary.magnitude);
  compare("rotary.theta", a.rotary.theta, b.rotary.theta);
  compare("rotary.factor", a.rotary.factor, b.rotary.factor);
  compare("rotary.short_factors", a.rotary.short_factors, b.rotary.short_factors);
  compare("rotary.long_factors", a.rotary.long_factors, b.rotary.long_factors);
  if (a.rotary.factor == 1 && a.rotary.scaling != RotaryScaling::longrope) return found.text;
  compare("rotary.scaling", word(a.rotary.scaling), word(b.rotary.scaling));
  if (a.rotary.scaling == RotaryScaling::linear) return found.text;
  compare("rotary.original_positions", a.rotary.original_positions, b.rotary.original_positions);
  if (a.rotary.scaling == RotaryScaling::longrope) return found.text;
  compare("rotary.low_frequency_factor", a.rotary.low_frequency_factor,
          b.rotary.low_frequency_factor);
  compare("rotary.high_frequency_factor", a.rotary.high_frequency_factor,
          b.rotary.high_frequency_factor);
  return found.text;
}

// Whether models are the same but for words, losses of training, and what is compared by layer or
// by its effect.
bool are_same_beside(const ModelSpec& ours, ModelSpec theirs) {
  theirs.name = ours.name;
  theirs.source = ours.source;
  theirs.family = ours.family;
  theirs.balance_loss = ours.balance_loss;
  theirs.z_loss = ours.z_loss;
  theirs.attention_scale = ours.attention_scale;
  theirs.kinds = ours.kinds;
  theirs.leading = ours.leading;
  theirs.pattern = ours.pattern;
  return ours == theirs;
}

// All fields of the mathematics. Of layers that differ, the first.
std::string difference(const ModelSpec& ours, const ModelSpec& theirs) {
  Difference found;
  const auto compare = [&](const char* field, const auto& a, const auto& b) {
    found.compare(field, a, b);
  };
  compare("layers", ours.layers, theirs.layers);
  compare("hidden", ours.hidden, theirs.hidden);
  compare("heads", ours.heads, theirs.heads);
  compare("kv_heads", ours.kv_heads, theirs.kv_heads);
  compare("head_dim", ours.head_dim, theirs.head_dim);
  compare("feed_forward", ours.feed_forward, theirs.feed_forward);
  compare("experts", ours.experts, theirs.experts);
  compare("active_experts", ours.active_experts, theirs.active_experts);
  compare("normalised_experts", ours.normalised_experts, theirs.normalised_experts);
  compare("expert_scale", ours.expert_scale, theirs.expert_scale);
  compare("shared_feed_forward", ours.shared_feed_forward, theirs.shared_feed_forward);
  compare("sigmoid_router", ours.sigmoid_router, theirs.sigmoid_router);
  compare("vocabulary", ours.vocabulary, theirs.vocabulary);
  compare("norm", word(ours.norm), word(theirs.norm));
  compare("norm_epsilon", ours.norm_epsilon, theirs.norm_epsilon);
  compare("activation", word(ours.activation), word(theirs.activation));
  compare("qkv_bias", ours.qkv_bias, theirs.qkv_bias);
  compare("bias", ours.bias, theirs.bias);
  compare("qk_norm", ours.qk_norm, theirs.qk_norm);
  compare("joint_qk_norm", ours.joint_qk_norm, theirs.joint_qk_norm);
  compare("sinks", ours.sinks, theirs.sinks);
  compare("parallel_residual", ours.parallel_residual, theirs.parallel_residual);
  compare("pre_norms", ours.pre_norms, theirs.pre_norms);
  compare("post_norms", ours.post_norms, theirs.post_norms);
  compare("attention_scale", ours.score_scale(), theirs.score_scale());
  compare("attention_cap", ours.attention_cap, theirs.attention_cap);
  compare("logits_cap", ours.logits_cap, theirs.logits_cap);
  compare("embedding_scale", ours.embedding_scale, theirs.embedding_scale);
  compare("learned_positions", ours.learned_positions, theirs.learned_positions);
  compare("tied_embeddings", ours.tied_embeddings, theirs.tied_embeddings);
  for (std::int64_t layer = 0; layer < std::min(ours.layers, theirs.layers); ++layer) {
    const std::string of_layer = layer_difference(layer, ours, theirs);
    if (!of_layer.empty()) return found.text + of_layer;
  }
  // A field that is not among these would train another model without a word.
  if (found.text.empty() && !are_same_beside(ours, theirs)) return "\n  a key that is not compared";
  return found.text;
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
