// Which parts of tensors ranks have, where tensor parallelism cuts them. Internal to the verifier.
//
// The state table says it of its own buffers. What a collective fills from them, or sums into them,
// has the same part; so has a copy of a parameter or a gradient. A product with a weight that is
// cut along its input is one of several terms of a sum. Each part has a pseudo-random number, as
// attention tiles have (see OriginTiles), so a sum that received each term once is known by its
// number. Terms of keys and values that are apart from queries are added to those of the queries;
// they are not counted.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/verify/rank_values.h"

namespace fpdt {

// The cut of the tensor of which each buffer has a part; null: it has none, or a whole tensor.
std::vector<const TensorCut*> cuts_of_buffers(const Schedule& schedule);

class OriginCuts {
 public:
  // In OriginRun::tiles: a sum of products of parts.
  static constexpr std::int32_t kTerms = -2;

  OriginCuts(const Schedule& schedule, RankValues& values);

  struct Cut {
    std::int64_t axis = -1;  // -1: the tensor is whole
    RankValue part{};        // of the rank
    RankValue number{};      // of this rank's terms
  };
  [[nodiscard]] const Cut& of(BufferIndex buffer) const {
    return cuts_[static_cast<std::size_t>(buffer)];
  }
  // T: parts of every tensor that is cut; 1: none is.
  [[nodiscard]] std::int64_t ways() const { return ways_; }
  // The part of this rank.
  [[nodiscard]] const RankValue& part() const { return part_; }
  // The part of keys and values, where they are cut in fewer parts than queries.
  [[nodiscard]] const RankValue& part_of_keys() const { return part_of_keys_; }
  // The sum of the numbers of all terms.
  [[nodiscard]] const RankValue& whole() const { return whole_; }

 private:
  std::vector<Cut> cuts_;  // of each buffer
  std::int64_t ways_ = 1;
  RankValue part_, part_of_keys_, whole_;
};

}  // namespace fpdt
