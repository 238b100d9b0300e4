// Tensors of the families, and checks of their sizes.
#include "fpdt/spec/model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// Initial values as in GPT-2: N(0, 0.02), residual projections scaled by 1/sqrt(2L).
constexpr double kDeviation = 0.02;
constexpr std::int64_t kWidthLimit = 1 << 20;

void append_norm(std::vector<TensorSpec>& tensors, const ModelSpec& model,
                 const std::string& name) {
  tensors.push_back({name + ".weight", {model.hidden}, false, 0, 1});
  if (model.norm == NormFamily::layer)
    tensors.push_back({name + ".bias", {model.hidden}, false, 0, 0});
}

void append_linear(std::vector<TensorSpec>& tensors, const std::string& name, std::int64_t out,
                   std::int64_t in, bool bias, double deviation) {
  tensors.push_back({name + ".weight", {out, in}, true, deviation, 0});
  if (bias) tensors.push_back({name + ".bias", {out}, false, 0, 0});
}

std::int64_t count(const std::vector<TensorSpec>& tensors) {
  std::int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum = add(sum, tensor.elements());
  return sum;
}

void check_range(std::vector<Diagnostic>& findings, const ModelSpec& model, std::string_view field,
                 std::int64_t value, std::int64_t limit) {
  if (value >= 1 && value <= limit) return;
  findings.push_back({"M101", fmt::format("model {}", model.name),
                      fmt::format("{}: expected 1 to {}, found {}", field, limit, value)});
}

// Only longrope has factors of pairs, and each pair has two.
template <class Add>
void check_pair_factors(const ModelSpec& model, const LayerKind& kind, const Add& add) {
  const RotarySpec& rotary = kind.rotary;
  const bool longrope = rotary.scaling == RotaryScaling::longrope;
  const std::int64_t pairs = longrope ? model.rotary_dim(kind) / 2 : 0;
  const auto fit = [&](const char* field, const std::vector<double>& factors) {
    const bool positive = std::all_of(factors.begin(), factors.end(), [](double factor) {
      return factor > 0 && factor < std::numeric_limits<double>::infinity();
    });
    if (std::ssize(factors) == pairs && positive) return;
    add(fmt::format(".{}: expected {} positive numbers, {}, found {}", field, pairs,
                    longrope ? "one for each pair of dimensions" : "which only longrope has",
                    factors.size()));
  };
  fit("short_factors", rotary.short_factors);
  fit("long_factors", rotary.long_factors);
  if (longrope && rotary.factor != 1) {
    add(fmt::format(".factor: expected 1, since longrope stretches each pair by its own, found {}",
                    rotary.factor));
  }
}

void check_rotary(const ModelSpec& model, const LayerKind& kind, std::vector<std::string>& wrong) {
  const RotarySpec& rotary = kind.rotary;
  const std::string name = kind.name.empty() ? "rotary" : kind.name + ".rotary";
  const auto add = [&](const std::string& message) { wrong.push_back(name + message); };
  if (!(rotary.fraction >= 0 && rotary.fraction <= 1)) {
    add(fmt::format(".fraction: expected 0 to 1, found {}", rotary.fraction));
  } else if (model.rotary_dim(kind) % 2 != 0) {
    add(
        fmt::format(".fraction: {} of head_dim {} rotates {} dimensions, expected an even number: "
                    "dimensions rotate in pairs",
                    rotary.fraction, model.head_dim, model.rotary_dim(kind)));
  }
  if (!(rotary.theta > 1) || !(rotary.factor >= 1) || rotary.original_positions < 1 ||
      !(rotary.low_frequency_factor > 0) || !(rotary.magnitude > 0 && rotary.magnitude < 1e6)) {
    add(": expected theta > 1, factor >= 1, original_positions >= 1, low_frequency_factor > 0, "
        "0 < magnitude < 1e6");
  }
  check_pair_factors(model, kind, add);
  const bool has_range = rotary.factor != 1 && rotary.scaling != RotaryScaling::linear;
  if (has_range && !(rotary.high_frequency_factor > rotary.low_frequency_factor)) {
    add(": high_frequency_factor must exceed low_frequency_factor");
  }
}

// Names appear in the names of blocks.
bool is_name(std::string_view name) {
  constexpr std::size_t kLongest = 32;
  const bool begins = !name.empty() && name.front() >= 'a' && name.front() <= 'z';
  return begins && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
           return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

// Whether the pattern names kinds that exist, and each of them.
bool check_pattern(const ModelSpec& model, std::vector<std::string>& wrong) {
  const auto kinds = static_cast<std::int64_t>(model.kinds.size());
  const auto length = std::ssize(model.leading) + std::ssize(model.pattern);
  if (kinds < 1 || kinds > kKindsMost) {
    wrong.push_back(fmt::format("kinds: expected 1 to {}, found {}", kKindsMost, kinds));
    return false;
  }
  if (model.pattern.empty() || length > model.layers) {
    wrong.push_back(fmt::format("{}: expected the kinds of 1 to {} layers, found {}",
                                model.leading.empty() ? "pattern" : "leading and pattern",
                                model.layers, length));
    return false;
  }
  for (std::int64_t k = 0; k < kinds; ++k) {
    const std::string& name = model.kinds[static_cast<std::size_t>(k)].name;
    const auto named = std::count_if(model.kinds.begin(), model.kinds.end(),
                                     [&](const LayerKind& other) { return other.name == name; });
    if (kinds > 1 && (!is_name(name) || named > 1)) {
      wrong.push_back(
          fmt::format("kinds: expected names of lowercase letters, digits and _, beginning with "
                      "a letter, each once, found \"{}\"",
                      name));
    }
    const auto has = [k](const std::vector<std::int64_t>& list) {
      return std::find(list.begin(), list.end(), k) != list.end();
    };
    if (!has(model.leading) && !has(model.pattern)) {
      wrong.push_back(fmt::format("pattern: no layer is of kind \"{}\"", name));
    }
  }
  return true;
}

}  // namespace

std::int64_t TensorSpec::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product = mul(product, size);
  return product;
}

ModelSpec with_layers_of(const ModelSpec& model, const LayerKind& kind) {
  ModelSpec all = model;
  all.kinds = {kind};
  all.leading.clear();
  all.pattern = {0};
  if (kind.dense_feed_forward == 0) return all;
  const ModelSpec none;
  all.feed_forward = kind.dense_feed_forward;
  all.experts = none.experts;
  all.active_experts = none.active_experts;
  all.normalised_experts = none.normalised_experts;
  all.expert_scale = none.expert_scale;
  all.shared_feed_forward = none.shared_feed_forward;
  all.sigmoid_router = none.sigmoid_router;
  all.balance_loss = none.balance_loss;
  all.z_loss = none.z_loss;
  all.kinds.front().dense_feed_forward = 0;
  return all;
}

std::vector<LayerRun> layer_runs(const ModelSpec& model) {
  std::vector<LayerRun> runs;
  std::int64_t width = -1;  // of the run's kinds
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const LayerKind& kind = model.kind_of(layer);
    if (kind.dense_feed_forward != std::exchange(width, kind.dense_feed_forward)) {
      runs.push_back(
          {layer, 0, kind.dense_feed_forward == 0 ? model : with_layers_of(model, kind)});
    }
    ++runs.back().count;
  }
  return runs;
}

std::vector<TensorSpec> layer_tensors(const ModelSpec& model) {
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(model.layers));
  std::vector<TensorSpec> tensors;
  if (model.pre_norms) append_norm(tensors, model, "norm1");
  append_linear(tensors, "qkv", model.qkv_width(), model.hidden, model.qkv_bias, kDeviation);
  if (model.qk_norm) {
    const bool joint = model.joint_qk_norm;
    const std::int64_t q = joint ? model.q_width() : model.head_dim;
    const std::int64_t k = joint ? model.kv_width() : model.head_dim;
    tensors.push_back({"q_norm.weight", {q}, false, 0, 1});
    tensors.push_back({"k_norm.weight", {k}, false, 0, 1});
  }
  if (model.sinks) tensors.push_back({"sinks.weight", {model.heads}, false, kDeviation, 0});
  append_linear(tensors, "out", model.hidden, model.q_width(), model.bias, residual);
  if (model.post_norms) append_norm(tensors, model, "out_norm");
  if (model.pre_norms) append_norm(tensors, model, "norm2");
  const std::int64_t matrices = model.has_experts() ? model.experts : 1;
  if (model.has_experts()) {
    append_linear(tensors, "router", model.experts, model.hidden, model.bias, kDeviation);
    if (model.sigmoid_router) tensors.push_back({"selection.bias", {model.experts}, false, 0, 0});
  }
  append_linear(tensors, "up", mul(matrices, model.up_width()), model.hidden, model.bias,
                kDeviation);
  append_linear(tensors, "down", mul(matrices, model.hidden), model.feed_forward, model.bias,
                residual);
  if (model.shared_feed_forward > 0) {
    const std::int64_t width = model.shared_feed_forward;
    append_linear(tensors, "shared_up", model.up_width_of(width), model.hidden, false, kDeviation);
    append_linear(tensors, "shared_down", model.hidden, width, false, residual);
  }
  if (model.post_norms) append_norm(tensors, model, "down_norm");
  return tensors;
}

std::vector<TensorSpec> global_tensors(const ModelSpec& model) {
  std::vector<TensorSpec> tensors;
  tensors.push_back({"embed.weight", {model.vocabulary, model.hidden}, true, kDeviation, 0});
  if (model.learned_positions > 0) {
    tensors.push_back(
        {"positions.weight", {model.learned_positions, model.hidden}, false, kDeviation, 0});
  }
  append_norm(tensors, model, "final_norm");
  if (!model.tied_embeddings) {
    tensors.push_back({"head.weight", {model.vocabulary, model.hidden}, true, kDeviation, 0});
  }
  return tensors;
}

std::vector<TensorSpec> model_tensors(const ModelSpec& model) {
  std::vector<TensorSpec> tensors = global_tensors(model);
  for (const LayerRun& run : layer_runs(model)) {
    for (std::int64_t layer = run.first; layer < run.first + run.count; ++layer) {
      for (TensorSpec& tensor : layer_tensors(run.model)) {
        tensor.name = layer_tensor_name(layer, tensor.name);
        tensors.push_back(tensor);
      }
    }
  }
  return tensors;
}

std::string layer_tensor_name(std::int64_t layer, std::string_view tensor) {
  return fmt::format("layers.{}.{}", layer, tensor);
}

std::int64_t layer_parameter_count(const ModelSpec& model) { return count(layer_tensors(model)); }

bool divides_heads(const ModelSpec& model, std::int64_t ranks) {
  const bool shares_keys = model.kv_heads % ranks == 0 || ranks % model.kv_heads == 0;
  return model.heads % ranks == 0 && shares_keys;
}

ModelSpec part_of(const ModelSpec& model, std::int64_t ways) {
  ModelSpec part = model;
  part.heads = div_exact(model.heads, ways);
  part.kv_heads = std::max<std::int64_t>(1, model.kv_heads / ways);
  part.feed_forward = div_exact(model.feed_forward, ways);
  return part;
}

bool divides_layers(const ModelSpec& model, std::int64_t ways) {
  return divides_heads(model, ways) && model.feed_forward % ways == 0 &&
         (ways == 1 || model.uncut().empty());
}

std::int64_t layers_parameter_count(const ModelSpec& model) {
  std::int64_t sum = 0;
  for (const LayerRun& run : layer_runs(model)) {
    sum = add(sum, mul(run.count, layer_parameter_count(run.model)));
  }
  return sum;
}

std::int64_t parameter_count(const ModelSpec& model) {
  return add(layers_parameter_count(model), count(global_tensors(model)));
}

std::int64_t active_parameter_count(const ModelSpec& model) {
  const std::int64_t biases = model.bias ? model.up_width() + model.hidden : 0;
  const std::int64_t each = mul(model.hidden, model.up_width() + model.feed_forward) + biases;
  std::int64_t active = parameter_count(model);
  for (const LayerRun& run : layer_runs(model)) {
    active -= mul(mul(run.count, each), run.model.experts - run.model.active_experts);
  }
  return active;
}

double attended_pairs(const LayerKind& kind, double tokens) {
  const auto triangle = [](double n) { return n * (n + 1) / 2; };
  const auto window = static_cast<double>(kind.window);
  return triangle(tokens) - (kind.window > 0 ? triangle(std::max(0.0, tokens - window)) : 0);
}

ModelSpec one_layer(const ModelSpec& model) {
  ModelSpec one = with_layers_of(model, model.kind_of(0));
  one.kinds.front().name.clear();
  one.layers = 1;
  return one;
}

std::vector<std::int64_t> layers_of_kinds(const ModelSpec& model) {
  std::vector<std::int64_t> layers(model.kinds.size(), 0);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    ++layers[static_cast<std::size_t>(model.kind_at(layer))];
  }
  return layers;
}

namespace {

std::string windows_in_words(const ModelSpec& model) {
  const LayerKind& first = model.kinds.front();
  if (model.kinds.size() == 1) {
    return first.window == 0 ? "" : fmt::format("window of {}", first.window);
  }
  std::string text;
  const std::vector<std::int64_t> layers = layers_of_kinds(model);
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const LayerKind& kind = model.kinds[k];
    text.append(text.empty() ? "" : ", ").append(std::to_string(layers[k]));
    if (k == 0) text.append(layers[k] == 1 ? " layer" : " layers");
    text.append(" of ").append(kind.name);
    if (kind.window > 0) text.append(fmt::format(" ({})", kind.window));
  }
  return text;
}

}  // namespace

std::string pattern_in_words(const ModelSpec& model) {
  std::string text = windows_in_words(model);
  if (!model.has_experts()) return text;
  const std::string experts =
      fmt::format("a token takes {} of {} experts{}", model.active_experts, model.experts,
                  model.shared_feed_forward > 0 ? " and what is shared" : "");
  return text.empty() ? experts : text.append("; ").append(experts);
}

namespace {

// Dense layers in a model of experts. Layers that have the same tensors follow each other, so that
// the tensors of a layer lie at a place that is affine in its number.
template <class Wrong>
void check_dense(const ModelSpec& model, Wrong& wrong) {
  std::set<std::int64_t> widths;
  for (const LayerKind& kind : model.kinds) {
    const std::int64_t width = kind.dense_feed_forward;
    widths.insert(width);
    if (width >= 0 && width <= kWidthLimit && (width == 0 || model.has_experts())) continue;
    wrong(fmt::format("{}.dense_feed_forward: expected 0{}, found {}", kind.name,
                      model.has_experts() ? fmt::format(" to {}", kWidthLimit) : " without experts",
                      width));
    return;
  }
  if (model.has_experts() && widths.count(0) == 0) {
    wrong("experts: expected a kind of layers that has them");
  } else if (layer_runs(model).size() > widths.size()) {
    wrong("kinds: expected layers of one dense_feed_forward to follow each other");
  }
}

std::int64_t widest_dense(const ModelSpec& model) {
  std::int64_t most = 0;
  for (const LayerKind& kind : model.kinds) most = std::max(most, kind.dense_feed_forward);
  return most;
}

template <class Wrong>
void check_experts(const ModelSpec& model, Wrong& wrong) {
  for (const auto& [key, loss] :
       {std::pair("balance_loss", model.balance_loss), {"z_loss", model.z_loss}}) {
    if (loss >= 0 && loss < 1e3 && (loss == 0 || model.has_experts())) continue;
    wrong(fmt::format("{}: expected 0{}, found {}", key,
                      model.has_experts() ? " to 1e3" : " without experts", loss));
  }
  if (model.sigmoid_router && (!model.has_experts() || model.balances())) {
    wrong(fmt::format("sigmoid_router: expected false {}",
                      model.has_experts() ? "beside balance_loss and z_loss, which are of a softmax"
                                          : "without experts"));
  }
  if (!(model.expert_scale > 0 && model.expert_scale < 1e6) ||
      (model.expert_scale != 1 && !model.has_experts())) {
    wrong(fmt::format("expert_scale: expected {}, found {}",
                      model.has_experts() ? "a positive number up to 1e6" : "1 without experts",
                      model.expert_scale));
  }
  if (model.shared_feed_forward < 0 || model.shared_feed_forward > kWidthLimit ||
      (model.shared_feed_forward > 0 && !model.has_experts())) {
    wrong(fmt::format("shared_feed_forward: expected 0{}, found {}",
                      model.has_experts() ? fmt::format(" to {}", kWidthLimit) : " without experts",
                      model.shared_feed_forward));
  }
  if (model.experts == 0 && model.active_experts == 0) return;
  if (model.experts < 1 || model.experts > kModelExpertsMost) {
    wrong(fmt::format("experts: expected 1 to {} beside active_experts, found {}",
                      kModelExpertsMost, model.experts));
  } else if (const std::int64_t most = std::min(model.experts, kModelActiveMost);
             model.active_experts < 1 || model.active_experts > most) {
    wrong(fmt::format("active_experts: expected 1 to {}, found {}", most, model.active_experts));
  }
  if (model.post_norms || model.parallel_residual) {
    wrong("experts: expected neither post_norms nor parallel_residual beside them");
  }
}

template <class Wrong>
void check_scales(const ModelSpec& model, Wrong& wrong) {
  if (!(model.attention_scale >= 0 && model.attention_scale < 1e6)) {
    wrong(fmt::format("attention_scale: expected 0 to 1e6, found {}", model.attention_scale));
  }
  for (const auto& [key, cap] :
       {std::pair("attention_cap", model.attention_cap), {"logits_cap", model.logits_cap}}) {
    // Smaller than its scores' rounding errors, a cap would leave nothing of them.
    if (cap == 0 || (cap >= 1e-3 && cap < 1e6)) continue;
    wrong(fmt::format("{}: expected 0 or 0.001 to 1e6, found {}", key, cap));
  }
  if (!(model.embedding_scale > 0 && model.embedding_scale < 1e6)) {
    wrong(fmt::format("embedding_scale: expected a positive number up to 1e6, found {}",
                      model.embedding_scale));
  }
}

}  // namespace

std::vector<Diagnostic> check(const ModelSpec& model) {
  constexpr std::int64_t kWindowMost = std::int64_t{1} << 31;
  std::vector<Diagnostic> findings;
  check_range(findings, model, "layers", model.layers, kLayersMost);
  check_range(findings, model, "hidden", model.hidden, kWidthLimit);
  check_range(findings, model, "heads", model.heads, 65536);
  check_range(findings, model, "kv_heads", model.kv_heads, 65536);
  check_range(findings, model, "head_dim", model.head_dim, 512);
  check_range(findings, model, "feed_forward", model.feed_forward, kWidthLimit);
  check_range(findings, model, "vocabulary", model.vocabulary, 1 << 24);
  if (!findings.empty()) return findings;
  const std::string where = fmt::format("model {}", model.name);
  const auto wrong = [&](std::string message) {
    findings.push_back({"M102", where, std::move(message)});
  };
  if (model.q_width() > kWidthLimit) {
    wrong(fmt::format("heads x head_dim: expected at most {}, found {}", kWidthLimit,
                      model.q_width()));
  }
  // Parameters, and the bytes of all their states, must fit 63 bits.
  constexpr double kParametersMost = static_cast<double>(std::int64_t{1} << 48);
  const auto width = [](std::int64_t value) { return static_cast<double>(value); };
  const double estimate =
      width(model.hidden) *
      (width(model.layers) * (width(model.qkv_width() + model.q_width()) +
                              3 * width(model.shared_feed_forward + widest_dense(model)) +
                              width(std::max<std::int64_t>(1, model.experts)) *
                                  width(model.up_width() + model.feed_forward)) +
       width(2 * model.vocabulary + std::max<std::int64_t>(0, model.learned_positions)));
  if (estimate > kParametersMost) {
    wrong(fmt::format("about {:.2g} parameters exceed the limit of {:.2g}", estimate,
                      kParametersMost));
  }
  if (model.joint_qk_norm && !model.qk_norm) {
    wrong("joint_qk_norm: expected false without qk_norm, found true");
  }
  if (model.heads % model.kv_heads != 0) {
    wrong(
        fmt::format("heads ({}) must be a multiple of kv_heads ({})", model.heads, model.kv_heads));
  }
  if (!(model.norm_epsilon > 0 && model.norm_epsilon < 1)) {
    wrong(fmt::format("norm_epsilon: expected a number between 0 and 1, found {}",
                      model.norm_epsilon));
  }
  check_experts(model, wrong);
  if (model.post_norms && (model.parallel_residual || model.bias)) {
    wrong("post_norms: expected neither parallel_residual nor bias beside them");
  }
  if (!model.pre_norms && !model.post_norms) {
    wrong("pre_norms: expected true without post_norms, found false");
  }
  check_scales(model, wrong);
  std::vector<std::string> of_kinds;
  if (check_pattern(model, of_kinds)) {
    for (const LayerKind& kind : model.kinds) {
      check_rotary(model, kind, of_kinds);
      if (kind.window >= 0 && kind.window < kWindowMost) continue;
      of_kinds.push_back(fmt::format("window: expected 0 to 2^31 - 1, found {}", kind.window));
    }
    check_dense(model, wrong);
  }
  for (std::string& message : of_kinds) wrong(std::move(message));
  if (model.learned_positions < 0 || model.learned_positions > (std::int64_t{1} << 31)) {
    wrong(fmt::format("learned_positions: expected 0 to 2^31, found {}", model.learned_positions));
  }
  return findings;
}

}  // namespace fpdt
