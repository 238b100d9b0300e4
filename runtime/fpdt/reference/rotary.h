// Rotary position embedding (Su et al., arXiv 2104.09864): the first 2n dimensions of a head are n
// pairs (i, i + n), and pair i turns by position * frequency_i. The position counts from the start
// of the document.
#pragma once

#include "fpdt/reference/attention.h"
#include "fpdt/reference/matrix.h"
#include "fpdt/spec/model.h"

namespace fpdt::reference {

// theta^(-i/n) for each pair i of the n = `rotary_dim` / 2, scaled when factor != 1. llama3:
// wavelengths under original_positions / high_frequency_factor stay, those over original_positions
// / low_frequency_factor are stretched by the factor, and those between interpolate smoothly.
// linear: all are stretched. yarn: pairs before the one that turns high_frequency_factor times in
// original_positions stay, those after the one that turns low_frequency_factor times are stretched,
// and those between interpolate linearly in i. longrope: each pair is stretched by its own factor,
// a long one in sequences of more than original_positions `tokens`.
std::vector<double> rotary_frequencies(const RotarySpec& rotary, std::int64_t rotary_dim,
                                       std::int64_t tokens);

enum class Turn : std::uint8_t { forward, backward };

// Turns the query and key heads of qkv [S, (H+2G)*D] in place, and multiplies the turned dimensions
// by `magnitude`. The backward turn is the adjoint.
void rotate(Matrix& qkv, const std::vector<std::int32_t>& documents, HeadLayout layout,
            const std::vector<double>& frequencies, Turn turn, double magnitude = 1);

}  // namespace fpdt::reference
