// The reference: one training step in plain loops over double, with the whole sequence on one rank.
// It is the only oracle of the project, so it is written to be checked by eye against the papers,
// not for speed. Read model.cpp first. Every other file is one part of it, forward and backward.
//
// Letters as in schedule/op.h: S tokens, E hidden, H query heads, G KV heads, D head size, F
// feed-forward, V vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fpdt::reference {

// Elements in row-major order; the user of a matrix knows its width. A tensor that a model lacks (a
// bias) is an empty matrix.
using Matrix = std::vector<double>;

// Sizes and token indices are signed in the spec and the data, which check that they are >= 0.
inline std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

// target += source, element by element.
inline void add_to(Matrix& target, const Matrix& source) {
  for (std::size_t i = 0; i < source.size(); ++i) target.at(i) += source[i];
}

}  // namespace fpdt::reference
