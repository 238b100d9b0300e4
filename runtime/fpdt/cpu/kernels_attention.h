// Code shared by the two attention kernels: blocks of rows of one head, and the mask.
#pragma once

#include "fpdt/cpu/kernels_common.h"
#include "fpdt/cpu/kernels_matmul.h"

namespace fpdt::cpu {

inline constexpr std::int64_t kHeadMax = 512;  // largest D for which the scratch memory suffices

// The mask of a tile, in the tile's rows. Query row i sees the key rows visible(i, keys) of a block
// of keys.
class Mask {
 public:
  template <class Op>
  Mask(const Op& op, const Frame& frame)
      : q_first_(op.q_first.at(frame.rank)),
        k_first_(op.k_first.at(frame.rank)),
        window_(op.window > 0 ? op.window : q_first_ + op.q_rows),
        documents_(frame.view(op, op.documents), q_first_, op.q_rows) {}

  // The rows of `keys` that query row i sees.
  [[nodiscard]] Range visible(std::int64_t i, Range keys) const {
    const std::int64_t token = q_first_ + i;
    const std::int64_t oldest = std::max(documents_.start(token), token + 1 - window_);
    return {std::max(keys.first, oldest - k_first_), std::min(keys.end, token + 1 - k_first_)};
  }
  // The rows of `keys` that at least one query row sees, as one range.
  [[nodiscard]] Range visible(Range queries, Range keys) const {
    Range all{keys.end, keys.first};
    for (std::int64_t i = queries.first; i < queries.end; ++i) {
      const Range own = visible(i, keys);
      if (own.empty()) continue;
      all = {std::min(all.first, own.first), std::max(all.end, own.end)};
    }
    return all;
  }

 private:
  std::int64_t q_first_, k_first_, window_;
  Documents documents_;
};

// Rows `rows` of the head that starts at element `column` of a [*, width] view, as f32: in place,
// or converted into `buffer`.
inline Block head_block(const View& view, std::int64_t width, std::int64_t column,
                        std::int64_t size, Range rows, float* buffer) {
  return block_of(view, width, rows.first, rows.count(), column, size, buffer);
}

}  // namespace fpdt::cpu
