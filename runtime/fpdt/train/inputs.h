// Cuts sequences into the inputs of each rank.
//
// Rank r holds its part of the sequences of replica r div P, one slot per micro-batch: its own
// tokens and labels in the chunk-interleaved order of spec/strategy.h, and the document starts of
// the whole sequence. Tokens after the end are padding: token 0, masked, each a document of its
// own, so that no position exceeds those of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/spec/strategy.h"
#include "fpdt/train/batches.h"

namespace fpdt {

// The inputs of one micro-batch on one rank.
struct RankInputs {
  std::vector<std::int32_t> tokens;     // [S_pad / P]
  std::vector<std::int32_t> labels;     // [S_pad / P]
  std::vector<std::int32_t> documents;  // [S_pad]
};

// Precondition: `sample` is as long as a sequence of the problem.
RankInputs rank_inputs(const Geometry& geometry, std::int64_t sequence_rank, const Sample& sample);

}  // namespace fpdt
