// Layout and padding of a sequence.
#include "fpdt/train/inputs.h"

#include "fpdt/base/assert.h"

namespace fpdt {

RankInputs rank_inputs(const Geometry& geometry, std::int64_t sequence_rank, const Sample& sample) {
  const auto length = static_cast<std::int64_t>(sample.tokens.size());
  FPDT_ASSERT(sample.labels.size() == sample.tokens.size());
  FPDT_ASSERT(sample.documents.size() == sample.tokens.size());
  FPDT_ASSERT(length <= geometry.padded_tokens);
  RankInputs inputs;
  inputs.documents = sample.documents;
  for (std::int64_t t = length; t < geometry.padded_tokens; ++t) {
    inputs.documents.push_back(static_cast<std::int32_t>(t));
  }
  for (std::int64_t row = 0; row < geometry.local_tokens(); ++row) {
    const std::int64_t token = global_token(geometry, sequence_rank, row);
    const auto t = static_cast<std::size_t>(token);
    inputs.tokens.push_back(token < length ? sample.tokens[t] : 0);
    inputs.labels.push_back(token < length ? sample.labels[t] : -1);
  }
  return inputs;
}

}  // namespace fpdt
