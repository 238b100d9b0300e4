// How much a bench measures: sizes, and how long it looks at each.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

struct Extent {
  Bytes working_set;  // more than the caches hold: what an op wants has left them

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

  // Ops that do nothing, in a row, and the size of the product that they follow: while it runs, a
  // GPU's queue fills, and the host is not what is measured. 0: none.
  std::int64_t least_ops, least_behind;

  double step_seconds;  // of one step of a measurement, about
  std::int32_t rounds;
};

// The sizes of training on a CPU or on a GPU. `quick`: small, few and short.
Extent cpu_extent(bool quick);
Extent gpu_extent(bool quick);

}  // namespace fpdt
