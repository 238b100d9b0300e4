// Finds the Hugging Face family of a model.
#include "fpdt/io/hf_family.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/io/hf_config.h"

namespace fpdt {
namespace {

// Whether layers differ in nothing but whether they see all tokens or one window.
bool has_one_window(const ModelSpec& model) {
  const LayerKind& first = model.kinds.front();
  if (model.kinds.size() == 1) return true;
  return model.kinds.size() == 2 && model.kinds.back().rotary == first.rotary &&
         (first.window == 0 || model.kinds.back().window == 0);
}

// Whether layers have either experts or a dense feed-forward, all of them the same.
bool is_uniform(const ModelSpec& model) {
  return model.expert_scale == 1 && model.shared_feed_forward == 0 &&
         std::none_of(model.kinds.begin(), model.kinds.end(),
                      [](const LayerKind& kind) { return kind.dense_feed_forward > 0; });
}

// Without what only Gemma has, and without sinks.
bool is_plain(const ModelSpec& model) {
  return is_uniform(model) && model.family != Family::gemma && !model.post_norms && !model.sinks &&
         model.attention_scale == 0 && model.attention_cap == 0 && model.logits_cap == 0 &&
         model.embedding_scale == 1;
}

// Norms all heads of queries together, as many columns as the stream has.
bool is_olmoe(const ModelSpec& model) {
  return model.has_experts() && model.joint_qk_norm && model.q_width() == model.hidden &&
         model.kinds.size() == 1 && model.kinds.front().window == 0;
}

// Routes by sigmoids, and norms all heads of queries together.
bool is_minimax(const ModelSpec& model) {
  return model.family == Family::llama && is_plain(model) && model.pre_norms &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         model.has_experts() && model.sigmoid_router && model.normalised_experts &&
         model.joint_qk_norm && !model.bias && !model.qkv_bias && model.learned_positions == 0 &&
         model.kinds.size() == 1 && model.kinds.front().window == 0;
}

// Routes by sigmoids beside what is shared, after dense layers.
bool is_glm(const ModelSpec& model) {
  const LayerKind &first = model.kinds.front(), &last = model.kinds.back();
  const bool leads = model.kinds.size() == 2 && first.dense_feed_forward > 0 &&
                     first.rotary == last.rotary && model.pattern.size() == 1;
  ModelSpec uniform = with_layers_of(model, last);
  uniform.expert_scale = 1;
  uniform.shared_feed_forward = 0;
  return model.family == Family::llama && is_plain(uniform) && model.pre_norms &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         model.has_experts() && model.sigmoid_router && !model.joint_qk_norm && !model.bias &&
         model.learned_positions == 0 && first.window == 0 && last.window == 0 &&
         (model.kinds.size() == 1 || leads) && model.shared_feed_forward > 0 &&
         model.shared_feed_forward % model.feed_forward == 0;
}

// Norms outputs alone, and all heads together. Layers with a window have plain frequencies, whose
// base a config cannot say for all versions of transformers.
bool is_olmo(const ModelSpec& model) {
  const LayerKind &first = model.kinds.front(), &last = model.kinds.back();
  const bool one_kind = model.kinds.size() == 1;
  const bool window_beside_full =
      model.kinds.size() == 2 && (first.window == 0) != (last.window == 0);
  for (const LayerKind& kind : model.kinds) {
    const RotarySpec& rotary = kind.rotary;
    if (rotary.fraction != 1 || is_longrope(rotary)) return false;
    if (kind.window > 0 && (rotary.factor != 1 || rotary.magnitude != 1)) return false;
    if (window_of(model) > 0 && rotary.theta != kOlmo3Theta) return false;
  }
  return model.family == Family::llama && !model.pre_norms && model.post_norms &&
         model.joint_qk_norm && !model.has_experts() && (one_kind || window_beside_full) &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         !model.qkv_bias && !model.sinks && model.attention_scale == 0 &&
         model.attention_cap == 0 && model.logits_cap == 0 && model.embedding_scale == 1 &&
         model.learned_positions == 0;
}

// Mistral has windows in all layers, Qwen in some as well.
bool is_llama(const ModelSpec& model) {
  const bool mixes = model.qk_norm || model.qkv_bias;
  return is_plain(model) && has_one_window(model) && (model.kinds.size() == 1 || mixes) &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::swiglu &&
         !model.bias && !model.sigmoid_router && !model.parallel_residual &&
         !(model.qk_norm && model.qkv_bias) && model.joint_qk_norm == is_olmoe(model) &&
         model.learned_positions == 0 &&
         (model.family == Family::phi || model.kinds.front().rotary.fraction == 1);
}

// All layers have experts. Mixtral divides their weights by the sum of those taken.
bool is_mixtral(const ModelSpec& model) {
  return model.has_experts() && !model.qk_norm && !model.qkv_bias && model.normalised_experts &&
         model.kinds.size() == 1;
}
bool is_qwen_moe(const ModelSpec& model) {
  return model.has_experts() && model.qk_norm && !model.joint_qk_norm && model.kinds.size() == 1 &&
         model.kinds.front().window == 0;
}

// Experts with biases, of a clamped activation, in layers whose attention has sinks.
bool is_gpt_oss(const ModelSpec& model) {
  return model.family == Family::llama && is_uniform(model) && has_one_window(model) &&
         window_of(model) > 0 && model.norm == NormFamily::rms &&
         model.activation == ActivationFamily::clamped_swiglu && model.has_experts() &&
         model.normalised_experts && !model.sigmoid_router && model.sinks && model.bias &&
         model.qkv_bias && !model.qk_norm && model.attention_scale == 0 &&
         model.attention_cap == 0 && model.logits_cap == 0 && model.embedding_scale == 1 &&
         model.learned_positions == 0 && model.kinds.front().rotary.fraction == 1;
}

// Phi stores the projections of Llama side by side. transformers takes its yarn for longrope.
bool is_phi(const ModelSpec& model) {
  const RotarySpec& rotary = model.kinds.front().rotary;
  const bool magnified = rotary.magnitude != 1 && !is_longrope(rotary);
  if (magnified || (rotary.factor != 1 && is_yarn(rotary))) return false;
  return model.family == Family::phi && model.kinds.size() == 1 && !model.qk_norm &&
         !model.qkv_bias && model.head_dim * model.heads == model.hidden;
}

// The root of the hidden size multiplies embeddings. In Gemma 3 layers with a window have plain
// frequencies; in Gemma 2 all layers have the same.
bool is_gemma(const ModelSpec& model) {
  const double scale = std::sqrt(static_cast<double>(model.hidden));
  const double scalar = 1 / (model.score_scale() * model.score_scale());  // its key is an integer
  std::int64_t windows = 0;
  for (const LayerKind& kind : model.kinds) {
    if (kind.rotary.fraction != 1 || is_longrope(kind.rotary)) return false;
    if (kind.window == 0) continue;
    ++windows;
    if (!model.qk_norm) continue;
    if (kind.rotary.factor != 1 || kind.rotary.magnitude != 1) return false;
  }
  const bool capped = model.attention_cap > 0 || model.logits_cap > 0;
  if (model.qk_norm ? capped : !has_one_window(model)) return false;
  return model.family == Family::gemma && model.kinds.size() <= 2 && windows == 1 &&
         model.norm == NormFamily::rms && model.activation == ActivationFamily::geglu_tanh &&
         model.pre_norms && model.post_norms && !model.sinks && !model.qkv_bias && !model.bias &&
         !model.parallel_residual && model.learned_positions == 0 &&
         std::abs(model.embedding_scale - scale) < 1e-9 * scale &&
         std::abs(scalar - std::round(scalar)) < 1e-9 * scalar;
}

// The properties that gpt2 and gpt_neox share.
bool is_gpt(const ModelSpec& model) {
  return is_plain(model) && model.kinds.size() == 1 && model.kinds.front().window == 0 &&
         model.norm == NormFamily::layer && !model.is_gated() && model.bias && model.qkv_bias &&
         !model.qk_norm && model.kv_heads == model.heads && model.q_width() == model.hidden;
}

// Among the scalings that transformers knows, only yarn and longrope have a magnitude. With a
// factor of 1 the others differ in nothing else.
void require_magnitude(const ModelSpec& model, const RotarySpec& rotary) {
  if (rotary.fraction == 0 || rotary.magnitude == 1 || rotary.factor == 1 || is_yarn(rotary)) {
    return;  // longrope's factor is 1
  }
  throw InputError(
      fmt::format("model {}: rotary.magnitude {} beside scaling {} with factor {}: no Hugging Face "
                  "family computes that; expected magnitude 1, factor 1 or scaling yarn",
                  model.name, rotary.magnitude, word(rotary.scaling), rotary.factor));
}

}  // namespace

HfFamily hf_family(const ModelSpec& model) {
  for (const LayerKind& kind : model.kinds) require_magnitude(model, kind.rotary);
  if (is_llama(model) && model.family == Family::llama) {
    if (!model.has_experts()) return HfFamily::llama;
    if (is_mixtral(model)) return HfFamily::mixtral;
    if (is_qwen_moe(model)) return HfFamily::qwen3_moe;
    if (is_olmoe(model)) return HfFamily::olmoe;
  }
  if (is_minimax(model)) return HfFamily::minimax_m2;
  if (is_glm(model)) return HfFamily::glm4_moe;
  if (is_olmo(model)) return window_of(model) > 0 ? HfFamily::olmo3 : HfFamily::olmo2;
  if (is_gpt_oss(model)) return HfFamily::gpt_oss;
  if (is_llama(model) && is_phi(model) && !model.has_experts()) return HfFamily::phi3;
  if (is_gemma(model) && !model.has_experts() && !model.joint_qk_norm)
    return model.qk_norm ? HfFamily::gemma3 : HfFamily::gemma2;
  if (is_gpt(model) && model.learned_positions > 0 && model.kinds.front().rotary.fraction == 0 &&
      !model.parallel_residual) {
    return HfFamily::gpt2;
  }
  if (is_gpt(model) && model.learned_positions == 0 && model.kinds.front().rotary.fraction > 0) {
    return HfFamily::gpt_neox;
  }
  throw InputError(fmt::format(
      "model {}: no Hugging Face family computes the same; known are llama, mistral, phi3, qwen2 "
      "and qwen3 (rms norm, swiglu, whole rotary, no biases but of qkv or norms of heads), mixtral "
      "(with experts of normalised weights, no norms of heads), qwen3_moe (with experts, norms of "
      "heads, no windows), olmoe (with experts, joint norms of heads as wide as the stream), "
      "minimax_m2 (with experts, joint norms of heads, sigmoid_router), "
      "glm4_moe (with experts, sigmoid_router, dense layers before them, shared_feed_forward), "
      "olmo2 and olmo3 (joint "
      "norms of heads, norms of outputs alone, windows with plain rotary), "
      "gpt_oss "
      "(sinks, windows, experts of normalised weights, clamped_swiglu, biases), gemma2 and gemma3 "
      "(windows, geglu_tanh, post norms, scaled embeddings, soft caps or norms of heads), gpt2 "
      "(layer norm, gelu, biases, learned positions), gpt_neox (layer norm, gelu, biases, rotary)",
      model.name));
}

}  // namespace fpdt
