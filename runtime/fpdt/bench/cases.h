// The measured ops with their operands, in the shapes that the lowering writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fpdt/bench/sheet.h"

namespace fpdt {

struct BenchCase {
  std::string what;
  std::function<void(Sheet& sheet)> write;
};

// The three products of a linear layer: y = x W^T, dx = dy W and dW += dy^T x, each with few rows
// and with many. `size` is their smallest size. The others are those of a model, 512 and 1024, or
// twice and four times `size` if that is more. No size exceeds `most` (at least `size`).
std::vector<BenchCase> matmul_cases(std::int64_t size, std::int64_t most, Dtype storage);

// Tiles of `rows` queries and as many keys, on each of `ranks` ranks.
struct TileShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t ranks = 1;
  Dtype storage = Dtype::bf16;
  bool workspace = false;  // as a library's kernels need (schedule/attention_workspace.h)
};
// A triangle has this many chunks: tiles (0,0), (1,0), (1,1), (2,0), (2,1), (2,2), in this order.
inline constexpr int kTriangle = 3;
// The three products of `experts` experts with as many rows each, two for each of half as many
// tokens: matrices [size, size].
std::vector<BenchCase> grouped_cases(std::int64_t rows, std::int64_t size, std::int64_t experts,
                                     Dtype storage);
BenchCase attention_forward_case(const TileShape& shape);
BenchCase attention_backward_case(const TileShape& shape);

// One op of every memory-bound kind, named by its kind, the last of its case, over `rows` rows of
// `width`.
std::vector<BenchCase> memory_cases(std::int64_t rows, std::int64_t width, Dtype storage);

// The smallest possible op.
BenchCase least_case();

// Copies bytes from the pinned host to the device, or back.
void write_copy(Sheet& sheet, LaneKind lane, std::int64_t bytes);
// In a group of `members`. `bytes` are those that each rank holds before an all-to-all, an
// all-reduce or a reduce-scatter, and after an all-gather. Precondition: 4 * members divides them.
std::vector<BenchCase> collective_cases(std::int64_t bytes, std::int64_t members,
                                        const std::string& group = kEverybody);

}  // namespace fpdt
