// Tensor names and layouts of the families, as pieces.
#include "fpdt/io/hf_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/io/hf_config.h"

namespace fpdt {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";

// The parts of one of our tensor names: "layers.3.qkv.weight" -> 3, "qkv", "weight". layer is -1
// for a global tensor.
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
constexpr std::array<NameRow, 14> kNames{{
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
    {"up", "model.layers.{}.mlp", "transformer.h.{}.mlp.c_fc",
     "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
    {"down", "model.layers.{}.mlp.down_proj", "transformer.h.{}.mlp.c_proj",
     "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
}};

// The experts of a layer, and the names of an expert's matrices.
struct ExpertNames {
  std::string_view experts, gate, up, down;
};
constexpr ExpertNames kMixtralNames{"block_sparse_moe.experts", "w1", "w3", "w2"};
constexpr ExpertNames kQwenNames{"mlp.experts", "gate_proj", "up_proj", "down_proj"};

// MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers of 4 bits, with an exponent each. A
// byte has two neighbours, the first in its lower half.
constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::int64_t kBlock = 32;
constexpr std::array<float, 16> kFp4{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// The names of Gemma that are not Llama's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kGemmaNames{{
    {"out_norm", "model.layers.{}.post_attention_layernorm"},
    {"norm2", "model.layers.{}.pre_feedforward_layernorm"},
    {"down_norm", "model.layers.{}.post_feedforward_layernorm"},
}};

bool is_gemma(HfFamily family) { return family == HfFamily::gemma2 || family == HfFamily::gemma3; }

std::string hf_name(HfFamily family, const TensorName& name) {
  for (const auto& [part, pattern] : kGemmaNames) {
    if (!is_gemma(family) || part != name.part) continue;
    return fmt::format(fmt::runtime(pattern), name.layer);
  }
  if (family == HfFamily::gpt_oss && name.part == "router") {
    return fmt::format("model.layers.{}.mlp.router", name.layer);
  }
  if (family == HfFamily::mixtral && name.part == "router") {
    return fmt::format("model.layers.{}.block_sparse_moe.gate", name.layer);
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

const TensorSpec& tensor_spec(const std::vector<TensorSpec>& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorSpec& tensor) { return tensor.name == name; });
  FPDT_ASSERT(found != tensors.end());
  return *found;
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
std::vector<HfPiece> of_experts(const ModelSpec& model, HfFamily family, const TensorName& name) {
  const ExpertNames& names = family == HfFamily::mixtral ? kMixtralNames : kQwenNames;
  std::vector<HfPiece> pieces;
  for (std::int64_t expert = 0; expert < model.experts; ++expert) {
    const std::string parent =
        fmt::format("model.layers.{}.{}.{}", name.layer, names.experts, expert);
    const auto add = [&](std::string_view part, std::int64_t rows, std::int64_t width) {
      const std::int64_t row = pieces.empty() ? 0 : pieces.back().row + pieces.back().rows;
      pieces.push_back(
          whole_piece(fmt::format("{}.{}.{}", parent, part, name.kind), {rows, width}, row, rows));
    };
    if (name.part == "up") {
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

// Buffers of masks and frequencies that old files contain.
bool is_constant_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

std::vector<float> plus(float more, std::span<const float> values) {
  std::vector<float> sums(values.begin(), values.end());
  for (float& value : sums) value += more;
  return sums;
}

}  // namespace

std::vector<TensorSpec> model_tensors(const ModelSpec& model) {
  std::vector<TensorSpec> tensors = global_tensors(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    for (TensorSpec& tensor : layer_tensors(model)) {
      tensor.name = layer_tensor_name(layer, tensor.name);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::vector<HfPiece> hf_pieces(const ModelSpec& model, std::string_view tensor) {
  const HfFamily family = hf_family(model);
  const TensorName name = split_name(tensor);
  const std::string own = fmt::format("{}.{}", name.part, name.kind);
  const std::vector<std::int64_t> shape =
      tensor_spec(name.layer < 0 ? global_tensors(model) : layer_tensors(model), own).shape;
  const std::string parent = hf_name(family, name);
  const std::string whole = fmt::format("{}.{}", parent, name.kind);
  if (family == HfFamily::phi3 && (name.part == "qkv" || name.part == "up")) {
    const char* fused = name.part == "qkv" ? "qkv_proj" : "gate_up_proj";
    return {whole_piece(fmt::format("{}.{}.{}", parent, fused, name.kind), shape, 0, shape[0])};
  }
  if (model.has_experts() && (name.part == "up" || name.part == "down")) {
    return family == HfFamily::gpt_oss ? of_gpt_oss(model, name) : of_experts(model, family, name);
  }
  if (name.part == "sinks") return {whole_piece(parent, shape, 0, shape[0])};
  const bool splits = family == HfFamily::llama || is_gemma(family) || model.has_experts();
  if (splits && name.part == "qkv") {
    return stacked(
        parent, name.kind, shape,
        {{"q_proj", model.q_width()}, {"k_proj", model.kv_width()}, {"v_proj", model.kv_width()}});
  }
  if (splits && name.part == "up") {
    return stacked(parent, name.kind, shape,
                   {{"gate_proj", model.feed_forward}, {"up_proj", model.feed_forward}});
  }
  if (family == HfFamily::gpt_neox && name.part == "qkv") return interleaved(model, whole, shape);
  const bool is_conv = family == HfFamily::gpt2 && name.layer >= 0 && shape.size() == 2;
  if (is_conv) return {{whole, {shape[1], shape[0]}, 0, shape[0], 0, 1, shape[0], shape[0]}};
  const bool less = is_gemma(family) && name.part.find("norm") != name.part.npos;
  HfPiece piece = whole_piece(whole, shape, 0, shape[0]);
  if (less) piece.less = 1;
  return {std::move(piece)};
}

bool in_order(const std::vector<HfPiece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const HfPiece& piece) {
    return piece.column_step == 1 && piece.rows * piece.row_step == elements_of(piece.hf_shape);
  });
}

std::vector<const HfPiece*> distinct(const std::vector<HfPiece>& pieces) {
  std::vector<const HfPiece*> first;
  for (const HfPiece& piece : pieces) {
    if (first.empty() || first.back()->name != piece.name) first.push_back(&piece);
  }
  return first;
}

HfWeights::HfWeights(SafetensorsSet tensors, const ModelSpec& model)
    : model_(model), tensors_(std::move(tensors)) {
  const std::vector<std::string> names = tensors_.names();
  const bool has_prefix = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with(kGpt2Prefix);
  });
  if (hf_family(model) == HfFamily::gpt2 && !has_prefix) dropped_prefix_ = kGpt2Prefix;
  std::vector<Diagnostic> findings;
  const auto wrong = [&](const std::string& name, std::string what) {
    findings.push_back({"T103", fmt::format("{}: {}", tensors_.path(), name), std::move(what)});
  };
  std::set<std::string> known;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<HfPiece> pieces = hf_pieces(model, tensor.name);
    for (const HfPiece* piece : distinct(pieces)) {
      const auto expect = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        known.insert(name);
        const SafetensorsEntry* entry = tensors_.find(name);
        if (entry == nullptr) return wrong(name, "missing");
        if (entry->shape == shape) return;
        wrong(name, fmt::format("expected shape [{}], found [{}]", fmt::join(shape, ", "),
                                fmt::join(entry->shape, ", ")));
      };
      const std::string name = stored_name(piece->name);
      if (!is_mxfp4(*piece)) {
        expect(name, piece->hf_shape);
        continue;
      }
      // Their rows are outputs.
      const std::int64_t blocks = div_ceil(piece->hf_shape[1], kBlock);
      std::vector<std::int64_t> shape{piece->hf_shape[0], piece->hf_shape[2], blocks};
      expect(name + std::string(kScales), shape);
      shape.push_back(kBlock / 2);
      expect(name + std::string(kBlocks), shape);
      if (piece->hf_shape[1] % kBlock != 0) {
        wrong(name, fmt::format("{} inputs are no whole blocks of {}", piece->hf_shape[1], kBlock));
      }
    }
  }
  for (const std::string& name : names) {
    const bool tied_copy =
        model.tied_embeddings && (name == "lm_head.weight" || name == "embed_out.weight");
    if (!known.contains(name) && !tied_copy && !is_constant_buffer(name)) wrong(name, "unexpected");
  }
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
}

std::string HfWeights::stored_name(const std::string& name) const {
  const bool drop = !dropped_prefix_.empty() && name.starts_with(dropped_prefix_);
  return drop ? name.substr(dropped_prefix_.size()) : name;
}

bool HfWeights::is_mxfp4(const HfPiece& piece) const {
  return piece.hf_shape.size() == 3 &&
         tensors_.find(stored_name(piece.name) + std::string(kBlocks)) != nullptr;
}

void HfWeights::read(std::string_view tensor, std::int64_t first, std::span<float> values) const {
  const std::vector<HfPiece> pieces = hf_pieces(model_, tensor);
  const TensorName name = split_name(tensor);
  const std::int64_t width =
      row_width(tensor_spec(name.layer < 0 ? global_tensors(model_) : layer_tensors(model_),
                            fmt::format("{}.{}", name.part, name.kind))
                    .shape);
  for (const HfPiece& piece : pieces) {
    const std::int64_t begin = std::max(first, piece.row * width);
    const std::int64_t end = std::min(first + std::ssize(values), (piece.row + piece.rows) * width);
    if (begin >= end) continue;
    const std::span<float> part = values.subspan(index(begin - first), index(end - begin));
    read_piece(piece, width, begin - piece.row * width, part);
    for (float& value : part) value += piece.less;
  }
}

void HfWeights::read_piece(const HfPiece& piece, std::int64_t width, std::int64_t first,
                           std::span<float> values) const {
  if (is_mxfp4(piece)) return read_mxfp4(piece, width, first, values);
  if (piece.column_step != 1 || piece.row_step != width) {
    return read_strided(piece, width, first, values);
  }
  const std::string name = stored_name(piece.name);
  tensors_.file_of(name).read_f32(name, piece.offset + first, values);
}

// Of each column, reads the run of rows that lies in the range.
void HfWeights::read_strided(const HfPiece& piece, std::int64_t width, std::int64_t first,
                             std::span<float> values) const {
  const std::string name = stored_name(piece.name);
  const SafetensorsFile& file = tensors_.file_of(name);
  const std::int64_t end = first + std::ssize(values);
  const std::int64_t most = kRunElements / piece.row_step;  // rows of a run
  std::vector<float> run;
  for (std::int64_t j = 0; j < width; ++j) {
    // The rows i for which first <= i * width + j < end.
    const std::int64_t i_first = div_ceil(std::max<std::int64_t>(first - j, 0), width);
    const std::int64_t i_end = div_ceil(std::max<std::int64_t>(end - j, 0), width);
    for (std::int64_t begin = i_first; begin < i_end; begin += most) {
      const std::int64_t rows = std::min(i_end - begin, most);
      run.resize(index((rows - 1) * piece.row_step + 1));
      file.read_f32(name, piece.offset + j * piece.column_step + begin * piece.row_step, run);
      for (std::int64_t i = 0; i < rows; ++i) {
        values[index((begin + i) * width + j - first)] = run[index(i * piece.row_step)];
      }
    }
  }
}

// Row by row: each is a row of blocks, and a row of their exponents.
void HfWeights::read_mxfp4(const HfPiece& piece, std::int64_t width, std::int64_t first,
                           std::span<float> values) const {
  const std::string blocks = stored_name(piece.name) + std::string(kBlocks);
  const std::string scales = stored_name(piece.name) + std::string(kScales);
  const std::int64_t each = width / kBlock;
  std::vector<std::byte> codes(index(width / 2)), exponents(index(each));
  // Outputs of all experts, by the first of the piece.
  const std::int64_t matrix = width * piece.column_step;
  const std::int64_t origin = piece.offset / matrix * piece.column_step + piece.offset % matrix;
  for (std::int64_t at = first; at < first + std::ssize(values);) {
    const std::int64_t row = at / width, column = at % width;
    const std::int64_t out = origin + row * piece.row_step;
    tensors_.file_of(blocks).read_bytes(blocks, out * width / 2, codes);
    tensors_.file_of(scales).read_bytes(scales, out * each, exponents);
    const std::int64_t count = std::min(width - column, first + std::ssize(values) - at);
    float scale = 0;
    for (std::int64_t i = column; i < column + count; ++i) {
      if (i == column || i % kBlock == 0) {
        scale = std::ldexp(1.0F, std::to_integer<int>(exponents[index(i / kBlock)]) - 127);
      }
      const auto code = std::to_integer<unsigned>(codes[index(i / 2)]) >> (i % 2 * 4) & 0xFU;
      values[index(at - first + i - column)] = kFp4[code] * scale;
    }
    at += count;
  }
}

void HfWeights::stream(std::string_view tensor, const TensorSink& sink) const {
  const std::vector<HfPiece> pieces = hf_pieces(model_, tensor);
  if (in_order(pieces)) {
    for (const HfPiece& piece : pieces) {
      const std::string name = stored_name(piece.name);
      const std::int64_t begin = piece.row * piece.row_step;
      tensors_.file_of(name).stream_f32(name,
                                        [&](std::int64_t first, std::span<const float> values) {
                                          if (piece.less == 0) return sink(begin + first, values);
                                          sink(begin + first, plus(piece.less, values));
                                        });
    }
    return;
  }
  const std::int64_t elements = elements_of(pieces.front().hf_shape);  // all are pieces of this one
  std::vector<float> values(index(std::min(elements, kStreamElements)));
  for (std::int64_t first = 0; first < elements; first += kStreamElements) {
    const auto piece = std::span(values).first(index(std::min(elements - first, kStreamElements)));
    read(tensor, first, piece);
    sink(first, piece);
  }
  verify(tensor);
}

void HfWeights::verify(std::string_view tensor) const {
  const std::vector<HfPiece> pieces = hf_pieces(model_, tensor);
  for (const HfPiece* const piece : distinct(pieces)) {
    const std::string name = stored_name(piece->name);
    if (!is_mxfp4(*piece)) {
      tensors_.file_of(name).verify(name);
      continue;
    }
    for (const std::string_view part : {kBlocks, kScales}) {
      const std::string stored = name + std::string(part);
      tensors_.file_of(stored).verify(stored);
    }
  }
}

}  // namespace fpdt
