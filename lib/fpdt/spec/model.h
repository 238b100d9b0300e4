// The model: a decoder-only transformer of the GPT, Llama, Phi or Gemma family, the kinds of its
// layers, and the list of its tensors.
//
// Everything that must agree on the parameters (lowering, reference, checkpoints, initial weights)
// takes them from `layer_tensors` and `global_tensors`. Linear weights are stored [out, in]: y = x
// * W^T.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/words.h"

namespace fpdt {

enum class Family : std::uint8_t { llama, gpt, gemma, phi };
enum class NormFamily : std::uint8_t { rms, layer };
enum class ActivationFamily : std::uint8_t {
  swiglu,
  gelu_tanh,
  gelu_erf,
  geglu_tanh,
  clamped_swiglu
};

constexpr auto words_of(Family) { return word_list("llama", "gpt", "gemma", "phi"); }
constexpr auto words_of(NormFamily) { return word_list("rms", "layer"); }
constexpr auto words_of(ActivationFamily) {
  return word_list("swiglu", "gelu_tanh", "gelu_erf", "geglu_tanh", "clamped_swiglu");
}

// How frequencies are stretched when factor != 1. llama3: those of long wavelength by the factor,
// as in Llama 3.1; linear: all, as if positions were divided; yarn: by dimension (Peng et al.,
// arXiv 2309.00071). llama3 and yarn leave frequencies alone that turn more than
// high_frequency_factor times in original_positions, and stretch fully those that turn less than
// low_frequency_factor times. yarn rounds the range between the two to whole dimensions,
// yarn_exact does not (gpt-oss). longrope stretches each pair by a factor of its own (Ding et al.,
// arXiv 2402.13753), and `factor` is 1.
enum class RotaryScaling : std::uint8_t { llama3, linear, yarn, yarn_exact, longrope };
constexpr auto words_of(RotaryScaling) {
  return word_list("llama3", "linear", "yarn", "yarn_exact", "longrope");
}

// Rotary position embedding. `fraction` of the head size rotates (the first dimensions, half-split
// pairs).
struct RotarySpec {
  double fraction = 0;  // 0: no rotary embedding
  double theta = 10000;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;
  RotaryScaling scaling = RotaryScaling::llama3;
  double magnitude = 1;  // multiplies the rotated dimensions (the attention factor of yarn)
  // Of longrope, for each pair: by which frequencies are stretched in sequences of at most
  // original_positions tokens, and in longer ones.
  std::vector<double> short_factors{}, long_factors{};
  bool operator==(const RotarySpec&) const = default;

  // Those of a sequence of so many tokens; empty without longrope.
  [[nodiscard]] const std::vector<double>& pair_factors(std::int64_t tokens) const {
    return tokens > original_positions ? long_factors : short_factors;
  }
};

// What layers of one kind share, and layers of another kind may have otherwise.
struct LayerKind {
  std::string name;         // "full"; empty in a model of one kind
  std::int64_t window = 0;  // tokens that a query sees, its own included; 0: all before it as well
  RotarySpec rotary;
  // In a model of experts: the width of a dense feed-forward in their place; 0: experts.
  std::int64_t dense_feed_forward = 0;
  bool operator==(const LayerKind&) const = default;

  // The window in a sequence of so many tokens: none, if it holds them all.
  [[nodiscard]] std::int64_t window_in(std::int64_t tokens) const {
    return window < tokens ? window : 0;
  }
};

inline constexpr std::int64_t kKindsMost = 8;
inline constexpr std::int64_t kLayersMost = 10000;
inline constexpr std::int64_t kModelExpertsMost = 1024, kModelActiveMost = 64;

struct ModelSpec {
  std::string name;
  Family family = Family::llama;
  std::int64_t layers = 0;        // L
  std::int64_t hidden = 0;        // E
  std::int64_t heads = 0;         // H
  std::int64_t kv_heads = 0;      // G
  std::int64_t head_dim = 0;      // D
  std::int64_t feed_forward = 0;  // F; of each expert
  std::int64_t vocabulary = 0;    // V
  NormFamily norm = NormFamily::rms;
  double norm_epsilon = 1e-5;
  ActivationFamily activation = ActivationFamily::swiglu;
  bool qkv_bias = false;           // bias of the qkv projection
  bool bias = false;               // biases of output projection, feed-forward and router
  bool qk_norm = false;            // RMS norm of each query and key head before it rotates
  bool joint_qk_norm = false;      // that norm is one of all query heads, and one of all key heads
  bool sinks = false;              // each head sees a key of value 0 and of a learned score
  bool parallel_residual = false;  // the feed-forward reads the layer's input, as attention does
  bool pre_norms = true;           // the inputs of attention and of the feed-forward are normed
  bool post_norms = false;         // their outputs are normed, before they join the stream
  // Experts of a layer (Shazeer et al., arXiv 1701.06538), and how many a token takes; 0: the
  // feed-forward is dense. Their weights are a softmax over all, of the experts taken, divided by
  // its sum if they are normalised, times `expert_scale`.
  std::int64_t experts = 0, active_experts = 0;  // X, k
  bool normalised_experts = true;
  double expert_scale = 1;
  // Width of a feed-forward that every token takes beside its experts (DeepSeekMoE, arXiv
  // 2401.06066, section 3.2); 0: none.
  std::int64_t shared_feed_forward = 0;
  // Weights are sigmoids instead, and experts are taken by sigmoid + selection.bias (DeepSeek-V3,
  // arXiv 2412.19437, eq. 14 to 16), which no gradient changes.
  bool sigmoid_router = false;
  // Factor of the auxiliary loss that balances experts (arXiv 2101.03961, eq. 4 and 5), over the
  // choices of a sequence in all layers; 0: none.
  double balance_loss = 0;
  // Factor of the mean square of a router's log sum of exponentials, over the tokens of a sequence
  // in all layers, which keeps logits small (ST-MoE, arXiv 2202.08906, eq. 5); 0: none.
  double z_loss = 0;
  double attention_scale = 0;          // of scores; 0: 1 / sqrt(D)
  double attention_cap = 0;            // of scaled scores, c tanh(s / c); 0: none
  double logits_cap = 0;               // of logits, likewise
  double embedding_scale = 1;          // multiplies the embedding of tokens, not a tied head
  std::int64_t learned_positions = 0;  // n_positions, or 0 for none
  std::vector<LayerKind> kinds{LayerKind{}};
  // The kinds of the first layers, as indices, and of those that follow; the pattern repeats.
  std::vector<std::int64_t> leading{};
  std::vector<std::int64_t> pattern{0};
  bool tied_embeddings = false;
  std::string source;
  bool operator==(const ModelSpec&) const = default;

  // H*D, G*D and the rows of the fused qkv projection, (H + 2G) * D.
  [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  // What of a layer is not cut, so that ranks cannot share its products; empty: all can be cut.
  [[nodiscard]] std::string_view uncut() const {
    return has_experts() ? "experts" : joint_qk_norm ? "joint norms of heads" : "";
  }
  // Whether the activation multiplies what it makes of gate rows by up rows.
  [[nodiscard]] bool is_gated() const {
    return activation != ActivationFamily::gelu_tanh && activation != ActivationFamily::gelu_erf;
  }
  [[nodiscard]] bool has_experts() const { return experts > 0; }
  // Whether the router has a loss of its own.
  [[nodiscard]] bool balances() const { return balance_loss > 0 || z_loss > 0; }
  // Width of the first feed-forward product: 2F (gate rows, then up rows) if gated, else F.
  [[nodiscard]] std::int64_t up_width() const { return up_width_of(feed_forward); }
  [[nodiscard]] std::int64_t up_width_of(std::int64_t width) const {
    return is_gated() ? 2 * width : width;
  }
  // Widths that a token meets: of its experts together, and of what is dense.
  [[nodiscard]] std::int64_t experts_width() const { return active_experts * feed_forward; }
  [[nodiscard]] std::int64_t dense_width() const {
    return has_experts() ? shared_feed_forward : feed_forward;
  }
  [[nodiscard]] double score_scale() const {
    return attention_scale > 0 ? attention_scale : 1 / std::sqrt(static_cast<double>(head_dim));
  }
  // The kind of a layer, as an index.
  [[nodiscard]] std::int64_t kind_at(std::int64_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return at < leading.size() ? leading[at] : pattern[(at - leading.size()) % pattern.size()];
  }
  [[nodiscard]] const LayerKind& kind_of(std::int64_t layer) const {
    return kinds[static_cast<std::size_t>(kind_at(layer))];
  }
  // Rotated dimensions of a head, rounded down as in transformers; `check` refuses odd ones.
  [[nodiscard]] std::int64_t rotary_dim(const LayerKind& kind) const {
    return static_cast<std::int64_t>(kind.rotary.fraction * static_cast<double>(head_dim));
  }
};

struct TensorSpec {
  std::string name;  // "qkv.weight"; with its layer, "layers.3.qkv.weight"
  std::vector<std::int64_t> shape;
  bool decay = false;    // matrices decay; norms, biases and positions do not
  double deviation = 0;  // of the initial normal distribution; 0: constant `fill`
  double fill = 0;
  [[nodiscard]] std::int64_t elements() const;
};

// Layers in a row that have the same tensors: `model` has those in every layer.
struct LayerRun {
  std::int64_t first = 0, count = 0;
  ModelSpec model;
};
// All layers. Those of a dense kind, if there are experts, are a run of their own.
std::vector<LayerRun> layer_runs(const ModelSpec& model);
// The same model with what layers of the kind have in every layer.
ModelSpec with_layers_of(const ModelSpec& model, const LayerKind& kind);

// Tensors of one layer, of any if all have the same, in order: [norm1.weight[, norm1.bias],]
// qkv.weight [(H+2G)D, E] (q, k, v rows)[, qkv.bias][, q_norm.weight [D or HD], k_norm.weight [D or
// GD]][, sinks.weight [H]], out.weight [E, HD][, out.bias] [, out_norm.weight][, norm2.weight[,
// norm2.bias]][, router.weight [X, E][, router.bias][, selection.bias [X]]], up.weight [up_width,
// E] [, up.bias], down.weight [E, F][, down.bias][, shared_up.weight, shared_down.weight][,
// down_norm.weight]. Norm biases exist for layer norm only. With experts, the matrices of all stand
// one below the other, and so do their biases: up.weight [X*up_width, E], down.weight [X*E, F]. The
// shared tensors are those of a feed-forward beside them.
std::vector<TensorSpec> layer_tensors(const ModelSpec& model);

// Global tensors, in order: embed.weight [V, E][, positions.weight [n_positions, E]],
// final_norm.weight[, final_norm.bias][, head.weight [V, E] unless tied].
std::vector<TensorSpec> global_tensors(const ModelSpec& model);

// Every tensor of the model with its full name: the global ones, then layer by layer.
std::vector<TensorSpec> model_tensors(const ModelSpec& model);

// "layers.3.qkv.weight".
std::string layer_tensor_name(std::int64_t layer, std::string_view tensor);

// Whether so many ranks can exchange tokens for heads: each gets whole query heads, and with them
// whole KV heads or a copy of one.
bool divides_heads(const ModelSpec& model, std::int64_t ranks);

// The part of each layer that one of `ways` ranks computes under tensor parallelism (Shoeybi et
// al., arXiv 1909.08053, section 3): heads and the width of the feed-forward are divided, and a KV
// head is repeated on the ranks that share it. Its layer tensors have the shapes of the parts.
// Precondition: divides_layers.
ModelSpec part_of(const ModelSpec& model, std::int64_t ways);
// Whether layers can be cut in so many parts.
bool divides_layers(const ModelSpec& model, std::int64_t ways);

// Parameters of the whole model, exact.
std::int64_t parameter_count(const ModelSpec& model);
std::int64_t layer_parameter_count(const ModelSpec& model);
// Of all layers.
std::int64_t layers_parameter_count(const ModelSpec& model);
// Those that a token meets: of its experts alone.
std::int64_t active_parameter_count(const ModelSpec& model);

// (query, key) pairs of a head of one layer in a sequence, or in its first tokens.
double attended_pairs(const LayerKind& kind, double tokens);

// The same model with its first layer alone.
ModelSpec one_layer(const ModelSpec& model);

// How many layers there are of each kind.
std::vector<std::int64_t> layers_of_kinds(const ModelSpec& model);
// "52 layers of window (1024), 10 of full"; "window of 4096"; "a token takes 8 of 128 experts";
// empty if all layers see all tokens and have no experts.
std::string pattern_in_words(const ModelSpec& model);

// Findings about the numbers themselves (zero sizes, heads that do not divide, absurd sizes).
std::vector<Diagnostic> check(const ModelSpec& model);

}  // namespace fpdt
