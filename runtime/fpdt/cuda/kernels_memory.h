// Kernels that fill memory: with values for timing products, and with a pattern that later shows
// which words were never written.
#pragma once

#include <cstdint>
#include <span>

#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

// Fills f32 or bf16 with values between -1 and 1, as a step has them. Zeros, NaN or leftovers would
// draw another power, so the GPU would run at another clock.
void fill_with_values(const View& view, Stream stream);

// A word that is neither an f32 nor a pair of bf16 of a step: its upper half is a NaN that no
// arithmetic gives. No index is as large.
inline constexpr std::uint32_t kPoison = 0x7FA5C35A;

// Poisons whole words: the begin and the size of `bytes` must be multiples of 4.
void poison(std::span<std::byte> bytes, Stream stream);

// Counts the words of `bytes` that hold kPoison. Returns n <= kPoisonCounts: once the stream is
// done, the result is the sum of the first n of `counts`. The begin and the size of `bytes` must be
// multiples of 4.
inline constexpr std::int64_t kPoisonCounts = 1024;
std::int64_t count_poisoned(std::span<const std::byte> bytes, std::int64_t* counts, Stream stream);

}  // namespace fpdt::cuda
