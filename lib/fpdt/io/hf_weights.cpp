// Reads tensors of the families, piece by piece.
#include "fpdt/io/hf_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/io/hf_config.h"

namespace fpdt {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";
// Of a Gemma 3 for images and text: what stands for the prefix of text, in published files and in
// those that name its modules; and what the tensors of images begin with.
constexpr std::string_view kTextPrefix = "model.";
constexpr std::array<std::string_view, 2> kTextPrefixes{"language_model.model.",
                                                        "model.language_model."};
constexpr std::array<std::string_view, 4> kImagePrefixes{"vision_tower.", "multi_modal_projector.",
                                                         "model.vision_tower.",
                                                         "model.multi_modal_projector."};

// MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers of 4 bits, with an exponent each. A
// byte has two neighbours, the first in its lower half.
constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::int64_t kBlock = 32;
constexpr std::array<float, 16> kFp4{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// FP8 as DeepSeek-V3 stores it (arXiv 2412.19437, section 3.3.2): a factor for each square of a
// matrix, of so many rows and columns.
constexpr std::string_view kSquareScales = "_scale_inv";
constexpr std::int64_t kSquare = 128;

// Buffers of masks and frequencies that old files contain.
bool is_constant_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

bool is_head(std::string_view name) {
  return name == "lm_head.weight" || name == "embed_out.weight" ||
         name == "language_model.lm_head.weight";
}

bool has_image_prefix(std::string_view name) {
  return std::any_of(kImagePrefixes.begin(), kImagePrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whether it is of a layer behind the last one, as those are that predict tokens further ahead.
bool is_of_later_layer(const ModelSpec& model, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  std::int64_t layer = 0;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer >= model.layers;
}

}  // namespace

HfWeights::HfWeights(SafetensorsSet tensors, const ModelSpec& model)
    : model_(model), tensors_(std::move(tensors)) {
  const std::vector<std::string> names = tensors_.names();
  const auto any_has = [&](std::string_view prefix) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.starts_with(prefix); });
  };
  const HfFamily family = hf_family(model);
  if (family == HfFamily::gpt2 && !any_has(kGpt2Prefix)) prefix_ = kGpt2Prefix;
  for (const std::string_view of_text : kTextPrefixes) {
    if (family != HfFamily::gemma3 || !any_has(of_text)) continue;
    prefix_ = kTextPrefix;
    stored_prefix_ = of_text;
  }
  const std::string merged =
      fmt::format("model.layers.{}.mlp.experts.gate_up_proj", model.layers - 1);
  if (any_has(merged)) experts_ = HfExperts::merged;
  std::vector<Diagnostic> findings;
  const auto wrong = [&](const std::string& name, std::string what) {
    findings.push_back({"T103", fmt::format("{}: {}", tensors_.path(), name), std::move(what)});
  };
  std::set<std::string> known;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<HfPiece> pieces = pieces_of(tensor.name);
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
        if (is_fp8(*piece) && piece->hf_shape.size() != 2) wrong(name, "FP8 is read of matrices");
        if (is_fp8(*piece) && piece->hf_shape.size() == 2) {
          expect(name + std::string(kSquareScales),
                 {div_ceil(piece->hf_shape[0], kSquare), div_ceil(piece->hf_shape[1], kSquare)});
        }
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
    const bool tied_copy = model.tied_embeddings && is_head(name);
    const bool of_images = prefix_ == kTextPrefix && has_image_prefix(name);
    const bool predicts = (family == HfFamily::minimax_m2 || family == HfFamily::glm4_moe) &&
                          is_of_later_layer(model, name);
    if (known.contains(name) || tied_copy || of_images || predicts || is_constant_buffer(name)) {
      continue;
    }
    wrong(name, "unexpected");
  }
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
}

std::string HfWeights::stored_name(const std::string& name) const {
  const bool replace = !prefix_.empty() && name.starts_with(prefix_);
  return replace ? stored_prefix_ + name.substr(prefix_.size()) : name;
}

bool HfWeights::is_mxfp4(const HfPiece& piece) const {
  return piece.hf_shape.size() == 3 &&
         tensors_.find(stored_name(piece.name) + std::string(kBlocks)) != nullptr;
}

bool HfWeights::is_fp8(const HfPiece& piece) const {
  const SafetensorsEntry* entry = tensors_.find(stored_name(piece.name));
  return entry != nullptr && entry->dtype == kF8;
}

void HfWeights::read(std::string_view tensor, std::int64_t first, std::span<float> values) const {
  const std::vector<HfPiece> pieces = pieces_of(tensor);
  const std::int64_t width = row_width(model_, tensor);
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
  scale(piece, piece.offset + first, values);
}

void HfWeights::scale(const HfPiece& piece, std::int64_t first, std::span<float> values) const {
  if (!is_fp8(piece) || values.empty()) return;
  const std::string name = stored_name(piece.name) + std::string(kSquareScales);
  const std::int64_t width = piece.hf_shape[1], across = div_ceil(width, kSquare);
  const std::int64_t top = first / width / kSquare;
  const std::int64_t bottom = (first + std::ssize(values) - 1) / width / kSquare;
  std::vector<float> factors(index((bottom - top + 1) * across));
  tensors_.file_of(name).read_f32(name, top * across, factors);
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t row = (first + i) / width, column = (first + i) % width;
    values[index(i)] *= factors[index((row / kSquare - top) * across + column / kSquare)];
  }
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
  const std::vector<HfPiece> pieces = pieces_of(tensor);
  if (in_order(pieces)) {
    for (const HfPiece& piece : pieces) {
      const std::string name = stored_name(piece.name);
      const std::int64_t begin = piece.row * piece.row_step;
      tensors_.file_of(name).stream_f32(name,
                                        [&](std::int64_t first, std::span<const float> values) {
                                          if (piece.less == 0 && !is_fp8(piece)) {
                                            return sink(begin + first, values);
                                          }
                                          std::vector<float> own(values.begin(), values.end());
                                          scale(piece, first, own);
                                          for (float& value : own) value += piece.less;
                                          sink(begin + first, own);
                                        });
      verify_scales(piece);
    }
    return;
  }
  const std::int64_t elements = pieces.front().elements();  // all are pieces of this one
  std::vector<float> values(index(std::min(elements, kStreamElements)));
  for (std::int64_t first = 0; first < elements; first += kStreamElements) {
    const auto piece = std::span(values).first(index(std::min(elements - first, kStreamElements)));
    read(tensor, first, piece);
    sink(first, piece);
  }
  verify(tensor);
}

void HfWeights::verify_scales(const HfPiece& piece) const {
  if (!is_fp8(piece)) return;
  const std::string scales = stored_name(piece.name) + std::string(kSquareScales);
  tensors_.file_of(scales).verify(scales);
}

void HfWeights::verify(std::string_view tensor) const {
  const std::vector<HfPiece> pieces = pieces_of(tensor);
  for (const HfPiece* const piece : distinct(pieces)) {
    const std::string name = stored_name(piece->name);
    if (!is_mxfp4(*piece)) {
      tensors_.file_of(name).verify(name);
      verify_scales(*piece);
      continue;
    }
    for (const std::string_view part : {kBlocks, kScales}) {
      const std::string stored = name + std::string(part);
      tensors_.file_of(stored).verify(stored);
    }
  }
}

}  // namespace fpdt
