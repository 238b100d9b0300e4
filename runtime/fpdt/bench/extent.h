// How much a bench measures: sizes, and how long it looks at each.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct Extent {
  Bytes working_set;  // more than the caches hold, so that operands come from memory

  std::vector<std::int64_t> product_sizes;  // of the smallest side, ascending
  std::int64_t product_most;                // of any side

  std::int64_t heads, kv_heads;  // of a tile
  std::int64_t head_dim;
  std::vector<std::int64_t> tile_rows;    // ascending
  std::int64_t fit_rows;                  // of the tiles that tell softmax and flops apart,
  std::int64_t narrow_head, wide_head;    // and their heads
  std::vector<std::int64_t> others_rows;  // of tiles by kernels that the rates are not of

  std::int64_t rows, width;  // of ops that are bound by memory

  std::vector<std::int64_t> copy_sizes;  // bytes
  std::int64_t copy_bytes;               // the one of them that gives the rate
  std::int64_t collective_bytes;
  std::int64_t company;  // size of the product that copies and collectives run beside

  // How many empty ops follow each other, and the size of the product before them: while it runs, a
  // GPU's queue fills, so that the host's speed is not measured. 0: none.
  std::int64_t least_ops, least_behind;

  // Of a measurement: seconds of one of its steps, about, and how many steps are recorded.
  struct Pace {
    double step_seconds;
    std::int32_t rounds;
  };
  Pace pace;
  // Of the largest product and the largest tile, which are most of a step: a GPU runs a burst at
  // clocks that its power does not allow for long.
  Pace long_pace;
};

// `full`: the sizes of training. `brief`: the few that are most of a step. `quick`: small, few and
// short, to see that it works.
enum class BenchLength : std::uint8_t { full, brief, quick };
Extent cpu_extent(BenchLength length);
Extent gpu_extent(BenchLength length);

}  // namespace fpdt
