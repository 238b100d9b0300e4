// Tensor names and layouts of the families, as pieces.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_weights.h"

namespace fpdt {
namespace {

struct TensorName {
  std::int64_t layer = -1;
  std::string_view part;
  std::string_view kind;
};

TensorName split_name(std::string_view name) {
  TensorName split;
  if (name.starts_with("layers.")) {
    name.remove_prefix(7);
    split.layer = 0;
    while (!name.starts_with('.')) {
      split.layer = split.layer * 10 + (name.front() - '0');
      name.remove_prefix(1);
    }
    name.remove_prefix(1);
  }
  const std::size_t dot = name.find('.');
  split.part = name.substr(0, dot);
  split.kind = name.substr(dot + 1);
  return split;
}

struct NameRow {
  std::string_view part;
  std::string_view llama, gpt2, gpt_neox;  // {} is the layer
};
// Names of tensors with the same contents, except that GPT-2 transposes (Conv1D); llama splits qkv
// and up.
constexpr std::array<NameRow, 17> kNames{{
    {"embed", "model.embed_tokens", "transformer.wte", "gpt_neox.embed_in"},
    {"positions", "", "transformer.wpe", ""},
    {"final_norm", "model.norm", "transformer.ln_f", "gpt_neox.final_layer_norm"},
    {"head", "lm_head", "lm_head", "embed_out"},
    {"norm1", "model.layers.{}.input_layernorm", "transformer.h.{}.ln_1",
     "gpt_neox.layers.{}.input_layernorm"},
    {"qkv", "model.layers.{}.self_attn", "transformer.h.{}.attn.c_attn",
     "gpt_neox.layers.{}.attention.query_key_value"},
    {"q_norm", "model.layers.{}.self_attn.q_norm", "", ""},
    {"k_norm", "model.layers.{}.self_attn.k_norm", "", ""},
    {"sinks", "model.layers.{}.self_attn.sinks", "", ""},
    {"out", "model.layers.{}.self_attn.o_proj", "transformer.h.{}.attn.c_proj",
     "gpt_neox.layers.{}.attention.dense"},
    {"norm2", "model.layers.{}.post_attention_layernorm", "transformer.h.{}.ln_2",
     "gpt_neox.layers.{}.post_attention_layernorm"},
    {"router", "model.layers.{}.mlp.gate", "", ""},
    {"selection", "model.layers.{}.mlp.e_score_correction_bias", "", ""},
    {"up", "model.layers.{}.mlp", "transformer.h.{}.mlp.c_fc",
     "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
    {"shared_up", "model.layers.{}.mlp.shared_experts", "", ""},
    {"shared_down", "model.layers.{}.mlp.shared_experts.down_proj", "", ""},
    {"down", "model.layers.{}.mlp.down_proj", "transformer.h.{}.mlp.c_proj",
     "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
}};

// The experts of a layer, and the names of an expert's matrices.
struct ExpertNames {
  std::string_view experts, gate, up, down;
};
constexpr ExpertNames kMixtralNames{"block_sparse_moe.experts", "w1", "w3", "w2"};
constexpr ExpertNames kQwenNames{"mlp.experts", "gate_proj", "up_proj", "down_proj"};

// The names of Gemma and OLMo that are not Llama's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kGemmaNames{{
    {"out_norm", "model.layers.{}.post_attention_layernorm"},
    {"norm2", "model.layers.{}.pre_feedforward_layernorm"},
    {"down_norm", "model.layers.{}.post_feedforward_layernorm"},
}};

bool is_gemma(HfFamily family) { return family == HfFamily::gemma2 || family == HfFamily::gemma3; }
bool is_olmo(HfFamily family) { return family == HfFamily::olmo2 || family == HfFamily::olmo3; }

// Those whose experts have the names of Mixtral.
bool is_mixtral(HfFamily family) {
  return family == HfFamily::mixtral || family == HfFamily::minimax_m2;
}

std::string hf_name(HfFamily family, const TensorName& name) {
  for (const auto& [part, pattern] : kGemmaNames) {
    if ((!is_gemma(family) && !is_olmo(family)) || part != name.part) continue;
    return fmt::format(fmt::runtime(pattern), name.layer);
  }
  if (family == HfFamily::gpt_oss && name.part == "router") {
    return fmt::format("model.layers.{}.mlp.router", name.layer);
  }
  if (is_mixtral(family) && (name.part == "router" || name.part == "selection")) {
    return fmt::format("model.layers.{}.block_sparse_moe.{}", name.layer,
                       name.part == "router" ? "gate" : "e_score_correction_bias");
  }
  if (family == HfFamily::glm4_moe && name.part == "selection") {
    return fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", name.layer);
  }
  for (const NameRow& row : kNames) {
    if (row.part != name.part) continue;
    const std::string_view pattern = family == HfFamily::gpt2       ? row.gpt2
                                     : family == HfFamily::gpt_neox ? row.gpt_neox
                                                                    : row.llama;
    return fmt::format(fmt::runtime(pattern), name.layer);
  }
  FPDT_ASSERT(false && "a tensor without a Hugging Face name");
  return {};
}

std::vector<std::int64_t> shape_of(const ModelSpec& model, const TensorName& of) {
  const std::vector<TensorSpec> tensors =
      of.layer < 0 ? global_tensors(model)
                   : layer_tensors(with_layers_of(model, model.kind_of(of.layer)));
  const std::string name = fmt::format("{}.{}", of.part, of.kind);
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorSpec& tensor) { return tensor.name == name; });
  FPDT_ASSERT(found != tensors.end());
  return found->shape;
}

std::int64_t row_width(const std::vector<std::int64_t>& shape) {
  return shape.size() == 2 ? shape[1] : 1;
}

std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product = mul(product, size);
  return product;
}

// Rows that are a whole Hugging Face tensor, in order.
HfPiece whole_piece(std::string name, const std::vector<std::int64_t>& hf_shape, std::int64_t row,
                    std::int64_t rows) {
  return {std::move(name), hf_shape, row, rows, 0, div_exact(elements_of(hf_shape), rows), 1, rows};
}

// Our rows in order, where each named part is a whole Hugging Face tensor.
struct Part {
  std::string_view name;
  std::int64_t rows;
};
std::vector<HfPiece> stacked(const std::string& parent, std::string_view kind,
                             const std::vector<std::int64_t>& shape,
                             const std::vector<Part>& parts) {
  std::vector<HfPiece> pieces;
  std::int64_t row = 0;
  for (const Part& part : parts) {
    pieces.push_back(whole_piece(fmt::format("{}.{}.{}", parent, part.name, kind),
                                 with_rows(shape, part.rows), row, part.rows));
    row += part.rows;
  }
  return pieces;
}

// The matrices of all experts, one below the other.
std::vector<HfPiece> of_experts(const ModelSpec& model, HfFamily family, const TensorName& name,
                                HfExperts experts) {
  const bool is_up = name.part == "up";
  if (experts == HfExperts::merged) {
    const std::int64_t out = is_up ? model.up_width() : model.hidden;
    const std::int64_t in = is_up ? model.hidden : model.feed_forward;
    HfPiece all = whole_piece(fmt::format("model.layers.{}.mlp.experts.{}", name.layer,
                                          is_up ? "gate_up_proj" : "down_proj"),
                              {model.experts * out, in}, 0, model.experts * out);
    all.hf_shape = {model.experts, out, in};
    return {std::move(all)};
  }
  const ExpertNames& names = is_mixtral(family) ? kMixtralNames : kQwenNames;
  std::vector<HfPiece> pieces;
  for (std::int64_t expert = 0; expert < model.experts; ++expert) {
    const std::string parent =
        fmt::format("model.layers.{}.{}.{}", name.layer, names.experts, expert);
    const auto add = [&](std::string_view part, std::int64_t rows, std::int64_t width) {
      const std::int64_t row = pieces.empty() ? 0 : pieces.back().row + pieces.back().rows;
      pieces.push_back(
          whole_piece(fmt::format("{}.{}.{}", parent, part, name.kind), {rows, width}, row, rows));
    };
    if (is_up) {
      add(names.gate, model.feed_forward, model.hidden);
      add(names.up, model.feed_forward, model.hidden);
    } else {
      add(names.down, model.hidden, model.feed_forward);
    }
  }
  return pieces;
}

// The experts of gpt-oss: all matrices in one tensor, [X, in, out], and all biases in one,
// [X, out]. Outputs of gate and up alternate.
std::vector<HfPiece> of_gpt_oss(const ModelSpec& model, const TensorName& name) {
  const bool up = name.part == "up", bias = name.kind == "bias";
  const std::int64_t out = up ? model.up_width() : model.hidden;
  const std::int64_t in = bias ? 1 : up ? model.hidden : model.feed_forward;
  const std::string whole = fmt::format("model.layers.{}.mlp.experts.{}{}", name.layer,
                                        up ? "gate_up_proj" : "down_proj", bias ? "_bias" : "");
  std::vector<std::int64_t> shape{model.experts, in, out};
  if (bias) shape.erase(shape.begin() + 1);
  const std::int64_t parts = up ? 2 : 1;
  std::vector<HfPiece> pieces;
  for (std::int64_t expert = 0; expert < model.experts; ++expert) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t rows = out / parts;
      pieces.push_back({whole, shape, expert * out + part * rows, rows, expert * in * out + part,
                        parts, bias ? 1 : out, out});
    }
  }
  return pieces;
}

// GPT-NeoX interleaves q, k and v by head: head x {q, k, v} x D.
std::vector<HfPiece> interleaved(const ModelSpec& model, const std::string& name,
                                 const std::vector<std::int64_t>& shape) {
  std::vector<HfPiece> pieces;
  const std::int64_t size = model.head_dim, width = row_width(shape);
  for (std::int64_t third = 0; third < 3; ++third) {
    for (std::int64_t head = 0; head < model.heads; ++head) {
      pieces.push_back({name, shape, (third * model.heads + head) * size, size,
                        (head * 3 + third) * size * width, width, 1, shape[0]});
    }
  }
  return pieces;
}

}  // namespace

std::vector<HfPiece> hf_pieces(const ModelSpec& all, std::string_view tensor, HfExperts experts) {
  const HfFamily family = hf_family(all);
  const TensorName name = split_name(tensor);
  const bool of_layer = name.layer >= 0;
  const ModelSpec model = of_layer ? with_layers_of(all, all.kind_of(name.layer)) : all;
  const std::vector<std::int64_t> shape = shape_of(model, name);
  const bool merged = experts == HfExperts::merged && is_mixtral(family);
  // Merged, the experts of Mixtral have the names of the others.
  const std::string parent = hf_name(merged ? HfFamily::qwen3_moe : family, name);
  const std::string whole = fmt::format("{}.{}", parent, name.kind);
  if (family == HfFamily::phi3 && (name.part == "qkv" || name.part == "up")) {
    const char* fused = name.part == "qkv" ? "qkv_proj" : "gate_up_proj";
    return {whole_piece(fmt::format("{}.{}.{}", parent, fused, name.kind), shape, 0, shape[0])};
  }
  if (model.has_experts() && (name.part == "up" || name.part == "down")) {
    return family == HfFamily::gpt_oss ? of_gpt_oss(model, name)
                                       : of_experts(model, family, name, experts);
  }
  if (name.part == "sinks" || name.part == "selection")
    return {whole_piece(parent, shape, 0, shape[0])};
  const bool splits =
      family == HfFamily::llama || is_gemma(family) || is_olmo(family) || all.has_experts();
  if (splits && name.part == "qkv") {
    return stacked(
        parent, name.kind, shape,
        {{"q_proj", model.q_width()}, {"k_proj", model.kv_width()}, {"v_proj", model.kv_width()}});
  }
  if (splits && (name.part == "up" || name.part == "shared_up")) {
    const std::int64_t width = model.dense_width();
    return stacked(parent, name.kind, shape, {{"gate_proj", width}, {"up_proj", width}});
  }
  if (family == HfFamily::gpt_neox && name.part == "qkv") return interleaved(model, whole, shape);
  const bool is_conv = family == HfFamily::gpt2 && name.layer >= 0 && shape.size() == 2;
  if (is_conv) return {{whole, {shape[1], shape[0]}, 0, shape[0], 0, 1, shape[0], shape[0]}};
  const bool less = is_gemma(family) && name.part.find("norm") != name.part.npos;
  HfPiece piece = whole_piece(whole, shape, 0, shape[0]);
  if (less) piece.less = 1;
  return {std::move(piece)};
}

std::int64_t row_width(const ModelSpec& model, std::string_view tensor) {
  return row_width(shape_of(model, split_name(tensor)));
}

std::int64_t HfPiece::elements() const { return elements_of(hf_shape); }

bool in_order(const std::vector<HfPiece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const HfPiece& piece) {
    return piece.column_step == 1 && piece.rows * piece.row_step == piece.elements();
  });
}

std::vector<const HfPiece*> distinct(const std::vector<HfPiece>& pieces) {
  std::vector<const HfPiece*> first;
  for (const HfPiece& piece : pieces) {
    if (first.empty() || first.back()->name != piece.name) first.push_back(&piece);
  }
  return first;
}

}  // namespace fpdt
