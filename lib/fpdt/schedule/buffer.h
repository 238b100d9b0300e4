// Buffers: every byte a step touches lives in one of them.
//
// A buffer is a ring of equal slots in one memory space. Version v of a buffer is one value and
// lives in slot v mod slots. Rows are the first dimension of the slot's shape; an operand may name
// a range of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/base/words.h"

namespace fpdt {

enum class MemorySpace : std::uint8_t { device, host_pinned, host };
// state lives across steps and shares bytes with no other buffer; the trainer fills inputs and
// reads outputs between steps; temporary lives inside one step.
enum class Role : std::uint8_t { state, input, output, temporary };
enum class Category : std::uint8_t {
  weights,        // parameters, sharded and gathered
  gradients,      // of parameters, sharded and gathered
  optimizer,      // master weights and moments
  activations,    // everything whose size grows with the tokens of a chunk
  communication,  // staging of collectives
  tokens,         // ids, labels, document starts
  scalars,        // learning rate, loss, norm
};
enum class Dtype : std::uint8_t { f32, bf16, i32 };

constexpr auto words_of(MemorySpace) { return word_list("device", "host_pinned", "host"); }
constexpr auto words_of(Role) { return word_list("state", "input", "output", "temporary"); }
constexpr auto words_of(Category) {
  return word_list("weights", "gradients", "optimizer", "activations", "communication", "tokens",
                   "scalars");
}
constexpr auto words_of(Dtype) { return word_list("f32", "bf16", "i32"); }
std::int64_t dtype_bytes(Dtype dtype);

// Slots and buffers start at multiples of this, which keeps vector loads and page accounting
// simple.
inline constexpr std::int64_t kAlignment = 256;
inline constexpr std::int64_t kUnplaced = -1;

struct Buffer {
  std::string name;
  MemorySpace space = MemorySpace::device;
  Role role = Role::temporary;
  Category category = Category::activations;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;  // of one slot; shape[0] is its rows
  std::int64_t slots = 1;
  std::int64_t offset = kUnplaced;  // bytes from the start of its space's arena

  bool operator==(const Buffer&) const = default;

  [[nodiscard]] std::int64_t rows() const { return shape.front(); }
  // Elements of one row.
  [[nodiscard]] std::int64_t row_elements() const;
  [[nodiscard]] std::int64_t row_bytes() const { return mul(row_elements(), dtype_bytes(dtype)); }
  // Bytes of one slot's contents, and the distance between slots.
  [[nodiscard]] Bytes slot_bytes() const { return Bytes{mul(rows(), row_bytes())}; }
  [[nodiscard]] Bytes slot_stride() const {
    return Bytes{round_up(slot_bytes().value, kAlignment)};
  }
  // Bytes of the whole ring in its arena.
  [[nodiscard]] Bytes bytes() const { return slots * slot_stride(); }
};

// The slot that holds a version.
inline std::int64_t slot_of(std::int64_t version, std::int64_t slots) {
  if (slots == 1) return 0;
  if (version >= 0 && version <= UINT32_MAX && slots <= UINT32_MAX) {
    // A 32-bit division is several times faster.
    return static_cast<std::uint32_t>(version) % static_cast<std::uint32_t>(slots);
  }
  return (version % slots + slots) % slots;
}

}  // namespace fpdt
