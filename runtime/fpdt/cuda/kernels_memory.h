// Kernels about memory itself: values to time products with, and a pattern that shows later which
// words nobody wrote.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// Values between -1 and 1, of f32 or bf16, as a step has them: zeros, NaN or whatever lay there
// would draw another power, and so time another clock.
void fill_with_values(const View& view, Stream stream);

// A word that no f32 and no pair of bf16 of a step is: its upper half is a NaN that no arithmetic
// gives, and no index is as large.
inline constexpr std::uint32_t kPoison = 0x7FA5C35A;

// Poisons whole words; `bytes` begins at a multiple of 4 and is as long.
void poison(std::span<std::byte> bytes, Stream stream);

// How many words of `bytes` hold kPoison: once the stream is done, the sum of as many of `counts`
// as is returned, at most kPoisonCounts. `bytes` begins at a multiple of 4 and is as long.
inline constexpr std::int64_t kPoisonCounts = 1024;
std::int64_t count_poisoned(std::span<const std::byte> bytes, std::int64_t* counts, Stream stream);

}  // namespace fpdt::cuda
