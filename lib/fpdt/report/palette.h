// One colour for each thing, in all pictures: the part of memory, the kind of an op, a curve.
//
// Parts and curves use colours of Okabe and Ito, kinds those of Paul Tol's "muted" scheme, and
// experts the orange of his "light" one.
// Both sets stay distinct under every common colour blindness, and neighbours in a stack differ in
// lightness, so that grey prints work too.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The parts of memory that tables and pictures tell apart.
enum class Part : std::uint8_t {
  parameters,  // the shard of this rank
  gathered,    // whole parameters, and their gradients before they are reduced
  gradients,   // the shard of this rank
  optimizer,
  activations,
  staging,  // of collectives
  other,    // tokens and scalars
};
inline constexpr std::size_t kParts = 7;

// Shades of the colour of activations, which tell the heaviest ones apart.
inline constexpr std::size_t kTints = 5;
std::string_view tint_color(std::size_t tint);

Part part_of(const Buffer& buffer);
std::string_view word(Part part);
std::string_view color(Part part);

// From the bottom of a stack to its top: permanent contents first, then temporary ones.
inline constexpr std::array<Part, kParts> kStackOrder{
    Part::optimizer,   Part::parameters, Part::gradients, Part::gathered,
    Part::activations, Part::staging,    Part::other};

// Kinds of op that pictures distinguish.
enum class OpKind : std::uint8_t {
  attention_forward,
  attention_recompute,
  attention_backward,
  matmul,
  experts,  // routers, rows on their way, and products of experts
  other,
  optimizer,
  fetch,
  spill,
  all_to_all,
  gather,
};
inline constexpr std::size_t kOpKinds = 11;

// A copy between the device and the host is a fetch or a spill by its direction, whatever its lane:
// with `duplex: false` one lane has both.
OpKind kind_of(const Schedule& schedule, const Op& op);
// The kind of each op of each block. A block may repeat the forward of layers that another block
// has run: its attention is recomputed, though its ops are those of forward.
std::vector<std::vector<OpKind>> op_kinds(const Schedule& schedule);
std::string_view word(OpKind kind);
std::string_view color(OpKind kind);
// Whether text on the colour should be white.
bool is_dark(OpKind kind);

// The colour of the n-th curve of a plot; it repeats after nine.
std::string_view curve_color(std::size_t curve);

}  // namespace fpdt
