// Writes pieces through where both orders agree, and else collects a tensor first.
#include "fpdt/io/hf_model_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/io/hf_companions.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/hf_weights.h"

namespace fpdt {
namespace {

std::vector<SafetensorsEntry> entries_of(const ModelSpec& model, std::string_view dtype) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : model_tensors(model)) {
    const std::vector<HfPiece> pieces = hf_pieces(model, tensor.name);
    for (const HfPiece* piece : distinct(pieces)) {
      entries.push_back({piece->name, std::string(dtype), piece->hf_shape});
    }
  }
  return entries;
}

}  // namespace

HfModelWriter::HfModelWriter(const std::string& directory, const ModelSpec& model,
                             std::string_view dtype, std::string_view config,
                             std::int64_t shard_bytes)
    : model_(model),
      tensors_(model_tensors(model)),
      writer_(directory, "model", entries_of(model, dtype), {{"format", "pt"}}, shard_bytes) {
  write_file_atomically(
      fmt::format("{}/config.json", directory),
      config_with_dtype(config.empty() ? hf_config_json(model) : std::string(config), dtype));
}

void HfModelWriter::write(std::span<const float> values) {
  while (!values.empty()) {
    FPDT_ASSERT(current_ < tensors_.size());
    const TensorSpec& tensor = tensors_[current_];
    const std::int64_t left = tensor.elements() - written_;
    const auto piece = values.first(std::min(values.size(), index(left)));
    const std::vector<HfPiece> pieces = hf_pieces(model_, tensor.name);
    if (const float less = pieces.front().less; less != 0) {
      std::vector<float> stored(piece.begin(), piece.end());
      for (float& value : stored) value -= less;
      writer_.write_f32(stored);
    } else if (in_order(pieces)) {
      writer_.write_f32(piece);
    } else {
      waiting_.reserve(index(tensor.elements()));
      waiting_.insert(waiting_.end(), piece.begin(), piece.end());
    }
    values = values.subspan(piece.size());
    written_ += std::ssize(piece);
    if (written_ < tensor.elements()) continue;
    if (!waiting_.empty()) write_permuted();
    ++current_;
    written_ = 0;
  }
}

// Writes the current tensor, which is complete, and forgets it.
void HfModelWriter::write_permuted() {
  const std::vector<float> ours = std::move(waiting_);
  waiting_ = {};
  const TensorSpec& tensor = tensors_[current_];
  std::vector<HfPiece> pieces = hf_pieces(model_, tensor.name);
  const std::int64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  if (pieces.front().transposed) {
    std::vector<float> run;
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t first = 0; first < tensor.shape[0]; first += kRunElements) {
        run.resize(index(std::min(tensor.shape[0] - first, kRunElements)));
        for (std::int64_t j = 0; j < std::ssize(run); ++j) {
          run[index(j)] = ours[index((first + j) * width + i)];
        }
        writer_.write_f32(run);
      }
    }
    return;
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const HfPiece& a, const HfPiece& b) { return a.hf_row < b.hf_row; });
  for (const HfPiece& piece : pieces) {
    writer_.write_f32(std::span(ours).subspan(index(piece.row * width), index(piece.rows * width)));
  }
}

}  // namespace fpdt
