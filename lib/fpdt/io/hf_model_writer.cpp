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
      config_for_weights(config.empty() ? hf_config_json(model) : std::string(config), dtype));
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
      collect(pieces, piece);
    }
    values = values.subspan(piece.size());
    written_ += std::ssize(piece);
    if (written_ < tensor.elements()) continue;
    ++current_;
    written_ = 0;
  }
}

// Collects the rows of a unit, writes them when they are complete, and forgets them.
void HfModelWriter::collect(const std::vector<HfPiece>& pieces, std::span<const float> values) {
  const TensorSpec& tensor = tensors_[current_];
  const std::int64_t width = tensor.elements() / tensor.shape[0];
  const std::int64_t unit = pieces.front().unit * width;
  std::int64_t begin = written_ - written_ % unit;  // of the unit
  waiting_.reserve(index(unit));
  while (!values.empty()) {
    const auto part = values.first(std::min(values.size(), index(unit) - waiting_.size()));
    waiting_.insert(waiting_.end(), part.begin(), part.end());
    values = values.subspan(part.size());
    if (std::ssize(waiting_) < unit) return;
    write_permuted(pieces, begin / width, width);
    waiting_.clear();
    begin += unit;
  }
  if (begin == tensor.elements()) waiting_ = {};
}

// Writes the unit that begins with row `first`, in their order.
void HfModelWriter::write_permuted(const std::vector<HfPiece>& pieces, std::int64_t first,
                                   std::int64_t width) {
  std::vector<float> theirs;
  const auto elements = std::ssize(waiting_);
  for (std::int64_t begin = 0; begin < elements; begin += kRunElements) {
    const std::int64_t end = std::min(elements, begin + kRunElements);
    theirs.assign(index(end - begin), 0);
    for (const HfPiece& piece : pieces) {
      if (piece.row < first || piece.row >= first + piece.unit) continue;
      place(piece, {begin, end, first, width}, theirs);
    }
    writer_.write_f32(theirs);
  }
}

// Copies the elements of a piece that lie in a range of the unit.
void HfModelWriter::place(const HfPiece& piece, const Range& range,
                          std::vector<float>& theirs) const {
  const std::int64_t at = piece.offset - range.first * range.width;  // in the unit
  const bool transposed = piece.column_step > piece.row_step;
  const std::int64_t outer = transposed ? range.width : piece.rows;
  const std::int64_t inner = transposed ? piece.rows : range.width;
  const std::int64_t outer_step = transposed ? piece.column_step : piece.row_step;
  const std::int64_t inner_step = transposed ? piece.row_step : piece.column_step;
  for (std::int64_t o = 0; o < outer; ++o) {
    const std::int64_t line = at + o * outer_step;
    if (line + (inner - 1) * inner_step < range.begin || line >= range.end) continue;
    const std::int64_t from = div_ceil(std::max<std::int64_t>(range.begin - line, 0), inner_step);
    const std::int64_t to = std::min(inner, div_ceil(range.end - line, inner_step));
    for (std::int64_t i = from; i < to; ++i) {
      const std::int64_t row = piece.row - range.first + (transposed ? i : o);
      const std::int64_t column = transposed ? o : i;
      theirs[index(line + i * inner_step - range.begin)] =
          waiting_[index(row * range.width + column)];
    }
  }
}

}  // namespace fpdt
