// One colour for each thing, in all pictures: the category of a buffer, the kind of an op, a curve.
//
// Categories and curves have colours of Okabe and Ito, kinds those of Paul Tol's "muted" scheme;
// either set can be told apart with every common colour blindness, and neighbours in a stack differ
// in lightness, so that grey prints work too.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fpdt/schedule/op.h"

namespace fpdt {

std::string_view color(Category category);

// From the bottom of a stack to its top: what stays, then what comes and goes.
inline constexpr std::array<Category, 7> kStackOrder{
    Category::optimizer,     Category::weights, Category::gradients, Category::activations,
    Category::communication, Category::tokens,  Category::scalars};

// What an op is to the eye.
enum class OpKind : std::uint8_t {
  attention_forward,
  attention_recompute,
  attention_backward,
  matmul,
  other,
  optimizer,
  fetch,
  spill,
  all_to_all,
  gather,
};
inline constexpr std::size_t kOpKinds = 10;

OpKind kind_of(const Op& op);
std::string_view word(OpKind kind);
std::string_view color(OpKind kind);
// Whether text on the colour should be white.
bool is_dark(OpKind kind);

// Of the first, second, ... curve of a plot; after four they come again.
std::string_view curve_color(std::size_t curve);

}  // namespace fpdt
