// Which tokens of a step each rank holds, and its inputs cut from the sequences.
//
// The schedule's feeds say it. A file of format 2 has none, but its embedding reads rows of the
// rank's tokens and knows the position of each in the sequence; ranks that hold the same positions
// then belong to different replicas. Replicas train on different sequences. Sequence i of a step
// belongs to replica i div B, micro-batch i mod B, for B micro-batches. Tokens after the end of a
// sequence are padding: token 0, masked, each a document of its own, so that no position exceeds
// those of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/schedule.h"
#include "fpdt/train/batches.h"

namespace fpdt {

// Rows [row, row + count) hold the tokens of a sequence from `token` on.
struct TokenRun {
  std::int64_t row = 0;
  std::int64_t token = 0;
  std::int64_t count = 0;
};

class TokenLayout {
 public:
  // Throws InputError (R106) unless every row is fed once, the ranks of a replica share out a
  // sequence, and embeddings and labels have the tokens that are fed.
  explicit TokenLayout(const Schedule& schedule);

  [[nodiscard]] std::int64_t micro_batches() const { return micro_batches_; }
  [[nodiscard]] std::int64_t replicas() const { return replicas_; }
  // Sequences of a step, of all replicas.
  [[nodiscard]] std::int64_t sequences() const { return replicas_ * micro_batches_; }
  // Tokens of a sequence, with padding.
  [[nodiscard]] std::int64_t sequence_tokens() const { return rows_ * (ranks_ / replicas_); }
  // The tokens of a sequence on one rank.
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t replica_of(std::int64_t rank) const {
    return replica_of_[static_cast<std::size_t>(rank)];
  }
  // The lowest rank of a replica.
  [[nodiscard]] std::int64_t first_rank(std::int64_t replica) const;
  // The tokens of a rank, by ascending row.
  [[nodiscard]] std::vector<TokenRun> of(std::int64_t rank) const;

 private:
  struct Part {
    std::int64_t row = 0, count = 0;
    RankExpression token;
  };
  void require_feeds_of(const Schedule& schedule, const std::vector<Part>& embedded) const;

  std::int64_t ranks_ = 1;
  std::int64_t micro_batches_ = 1;
  std::int64_t replicas_ = 1;
  std::int64_t rows_ = 0;
  std::vector<Part> parts_;
  std::vector<std::int64_t> replica_of_;  // by rank
};

// The inputs of one micro-batch on one rank.
struct RankInputs {
  std::vector<std::int32_t> tokens;     // [rows]
  std::vector<std::int32_t> labels;     // [rows]
  std::vector<std::int32_t> documents;  // [sequence_tokens]
};

// Precondition: `sample` is at most as long as a sequence of the layout.
RankInputs rank_inputs(const TokenLayout& layout, std::int64_t rank, const Sample& sample);

}  // namespace fpdt
