// From sequences to what each rank is fed.
//
// Rank r holds its part of the sequences of replica r div P, one slot for each micro-batch: its own
// tokens and labels in the chunk-interleaved order of spec/strategy.h, and the document starts of
// the whole sequence. Tokens after the end are padding: token 0, masked, each a document of its
// own, so that no position is over those of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/spec/strategy.h"
#include "fpdt/train/batches.h"

namespace fpdt {

// Of one micro-batch on one rank.
struct RankInputs {
  std::vector<std::int32_t> tokens;     // [S_pad / P]
  std::vector<std::int32_t> labels;     // [S_pad / P]
  std::vector<std::int32_t> documents;  // [S_pad]
};

// `sample` is as long as a sequence of the problem.
RankInputs rank_inputs(const Geometry& geometry, std::int64_t sequence_rank, const Sample& sample);

}  // namespace fpdt
