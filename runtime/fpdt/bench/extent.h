// The extent of a bench: sizes, and the time spent on each.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct BenchExtent {
  Bytes working_set;  // more than the caches, so operands come from memory

  std::vector<std::int64_t> product_sizes;  // smallest sides, ascending
  std::int64_t product_most;                // the limit of any side

  std::int64_t heads, kv_heads;  // of a tile
  std::int64_t head_dim;
  std::vector<std::int64_t> tile_rows;    // ascending
  std::int64_t fit_rows;                  // for the tiles that separate softmax and flops
  std::int64_t narrow_head, wide_head;    // head sizes of those tiles
  std::int64_t large_head = 256;          // of tiles whose shares are measured beside a library
  std::vector<std::int64_t> others_rows;  // for the kernels that do not give the rates

  std::int64_t rows, width;  // of memory-bound ops

  std::vector<std::int64_t> copy_sizes;        // bytes
  std::int64_t copy_bytes;                     // the one that gives the rate
  std::vector<std::int64_t> collective_sizes;  // bytes of each rank
  std::int64_t collective_bytes;               // the one that gives the rate
  std::int64_t company;  // size of the product that copies and collectives run beside

  // How many empty ops follow each other, and the size of the product before them. While the
  // product runs, a GPU's queue fills, so that the speed of the host is not measured. 0: no
  // product.
  std::int64_t least_ops, least_behind;

  // The approximate seconds of one step, and the number of recorded steps.
  struct Pace {
    double step_seconds;
    std::int32_t rounds;
  };
  Pace pace;
  // For the largest product and the largest tile, which make up most of a step. In a short burst a
  // GPU runs at clocks that its power limit does not allow for long.
  Pace long_pace;
};

// `full`: the sizes of training. `brief`: the few sizes that make up most of a step. `quick`: few
// small sizes, to check that the bench works.
enum class BenchLength : std::uint8_t { full, brief, quick };
BenchExtent cpu_extent(BenchLength length);
BenchExtent gpu_extent(BenchLength length);

}  // namespace fpdt
