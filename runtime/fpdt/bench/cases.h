// What is measured: ops with their operands, in the shapes in which the lowering writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fpdt/bench/sheet.h"

namespace fpdt {

struct Case {
  std::string what;
  std::function<void(Sheet& sheet)> write;
};

// The three products of a linear layer: y = x W^T, dx = dy W and dW += dy^T x, each with few rows
// and with many. `size` is their smallest size; the others are those of a model, 512 and 1024, or
// twice and four times `size` where that is more.
std::vector<Case> matmul_cases(std::int64_t size, Dtype storage);

// Chunks of a triangle: tiles (0,0), (1,0), (1,1), (2,0), (2,1), (2,2) of `rows` rows, in this
// order.
inline constexpr int kTriangle = 3;
Case attention_forward_case(std::int64_t rows, std::int64_t head_dim, std::int64_t ranks,
                            Dtype storage);
Case attention_backward_case(std::int64_t rows, std::int64_t head_dim, std::int64_t ranks,
                             Dtype storage);

// An op of every kind that is bound by memory, named by its kind, over `rows` rows of `width`.
std::vector<Case> memory_cases(std::int64_t rows, std::int64_t width, Dtype storage);

// The least op there is.
Case least_case();

// Bytes from the pinned host to the device, or back.
void write_copy(Sheet& sheet, LaneKind lane, std::int64_t bytes);
// Bytes that each rank holds before an all-to-all, an all-reduce or a reduce-scatter, and after an
// all-gather. Precondition: ranks divide them by 4.
std::vector<Case> collective_cases(std::int64_t bytes, std::int64_t ranks);

}  // namespace fpdt
