// One colour for each thing, in all pictures: the category of a buffer, the kind of an op, a curve.
//
// Categories and curves use colours of Okabe and Ito, kinds those of Paul Tol's "muted" scheme.
// Both sets stay distinct under every common colour blindness, and neighbours in a stack differ in
// lightness, so that grey prints work too.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

std::string_view color(Category category);

// From the bottom of a stack to its top: permanent contents first, then temporary ones.
inline constexpr std::array<Category, 7> kStackOrder{
    Category::optimizer,     Category::weights, Category::gradients, Category::activations,
    Category::communication, Category::tokens,  Category::scalars};

// Kinds of op that pictures distinguish.
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

// A copy between the device and the host is a fetch or a spill by its direction, whatever its lane:
// with `duplex: false` one lane has both.
OpKind kind_of(const Schedule& schedule, const Op& op);
std::string_view word(OpKind kind);
std::string_view color(OpKind kind);
// Whether text on the colour should be white.
bool is_dark(OpKind kind);

// The colour of the n-th curve of a plot; it repeats after four.
std::string_view curve_color(std::size_t curve);

}  // namespace fpdt
