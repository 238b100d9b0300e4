// Products of small f32 blocks by Eigen, used by the matrix product and attention.
//
// Blocks are so small that Eigen packs them on the stack, in less than 1 MiB, and never allocates.
// CMakeLists.txt sets its limit.
#pragma once

#include "fpdt/cpu/kernels_common.h"

namespace fpdt::cpu {

// Block `index` of [0, rows), cut into blocks of `size`.
inline Range block_range(std::int64_t index, std::int64_t size, std::int64_t rows) {
  return {std::min(rows, index * size), std::min(rows, (index + 1) * size)};
}

// Row i of a block starts at data + i * stride.
struct Block {
  const float* data;
  std::int64_t stride;
};

// Rows [row, +rows) and columns [column, +columns) of a view of the given width, as f32: in place,
// or widened into `buffer`.
Block block_of(const View& view, std::int64_t width, std::int64_t row, std::int64_t rows,
               std::int64_t column, std::int64_t columns, float* buffer);

enum class Layout : std::uint8_t { plain, transposed };

// out[m,n] += a * b, row-major with rows `out_stride` apart. A transposed a is stored [k,m], b
// [n,k].
void multiply_add(Layout a_layout, Block a, Layout b_layout, Block b, std::int64_t m,
                  std::int64_t n, std::int64_t k, float* out, std::int64_t out_stride);
// out = a * b.
void multiply(Layout a_layout, Block a, Layout b_layout, Block b, std::int64_t m, std::int64_t n,
              std::int64_t k, float* out, std::int64_t out_stride);

}  // namespace fpdt::cpu
