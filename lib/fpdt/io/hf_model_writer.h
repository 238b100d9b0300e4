// Writes our tensors as a Hugging Face model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/io/hf_weights.h"
#include "fpdt/io/safetensors_writer.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// Writes config.json and the weights into an existing directory. Takes all tensors of
// `model_tensors` in order, in pieces. Holds rows of a tensor (HfPiece::unit) only if they are
// stored in another order.
class HfModelWriter {
 public:
  // dtype is "F32" or "BF16". `config` is the text of the model's original config.json, whose keys
  // are kept; "" if it had none.
  HfModelWriter(const std::string& directory, const ModelSpec& model, std::string_view dtype,
                std::string_view config = "", std::int64_t shard_bytes = kShardBytes);

  // Writes the next elements; a piece may span tensors.
  void write(std::span<const float> values);
  // All tensors must be complete. Returns the checksums of the headers of the files.
  std::vector<std::uint64_t> commit() { return writer_.commit(); }

 private:
  // Elements [begin, end) of the unit that begins with row `first`; rows have `width` elements.
  struct Range {
    std::int64_t begin, end, first, width;
  };
  void collect(const std::vector<HfPiece>& pieces, std::span<const float> values);
  void write_permuted(const std::vector<HfPiece>& pieces, std::int64_t first, std::int64_t width);
  void place(const HfPiece& piece, const Range& range, std::vector<float>& theirs) const;

  ModelSpec model_;
  std::vector<TensorSpec> tensors_;
  ShardedWriter writer_;
  std::size_t current_ = 0;
  std::int64_t written_ = 0;    // elements of the current tensor
  std::vector<float> waiting_;  // of the current unit, if its rows are stored in another order
};

}  // namespace fpdt
