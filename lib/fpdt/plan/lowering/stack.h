// The slots of a ring that holds what a step stores from forward to backward.
//
// Inputs of segments grow from the first slot up, attention outputs that forward stores from the
// last slot down, layer by layer. Backward frees both from the middle on. There each segment has,
// while it is repeated, the inputs x_p of its layers but the first, and the outputs O_p of its
// layers that are made again:
//
//   inputs of segments 0 .. s | gradient | O_0 x_1 O_1 x_2 O_2 .. | free | stored, layers .. 1 0
//
// The gradient of an input takes its slots, if it has no memory of its own: that of the input after
// the segment waits there for backward of the segment.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/operand.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {

// What a block of a layer does: forward; forward again before backward of its segment; or backward,
// which begins with what it has to repeat.
enum class Visit : std::uint8_t { forward, rerun, backward };

class Stack {
 public:
  // Slots for outputs of one layer.
  struct Outputs {
    std::int64_t repeated = 0, stored = 0;
  };
  struct Contents {
    std::int64_t first = 0, count = 0;  // segments whose inputs it has; the head's is the last
    std::int64_t input = 0;             // slots for an input
    bool gradients = false;             // of inputs, in the same slots
    std::vector<Outputs> outputs;       // by layer class
  };

  Stack() = default;
  Stack(const std::vector<LayerPlace>& places, const Contents& contents);

  [[nodiscard]] std::int64_t slots() const { return slots_; }

  // Versions in the first of the slots of something, as blocks of a layer number them. A slot is
  // used once in a turn of the ring. A turn is a segment of forward, and one or two are a segment
  // of backward.
  [[nodiscard]] Version input(const LayerPlace& at, Visit visit) const;
  [[nodiscard]] Version gradient(const LayerPlace& at) const;
  [[nodiscard]] Version repeated() const;
  [[nodiscard]] Version stored(std::size_t layer_class) const;

 private:
  // From the input of a segment to what is in the middle.
  [[nodiscard]] std::int64_t gap() const { return contents_.gradients ? 2 : 1; }
  // Of one layer to those of the next one in its segment.
  [[nodiscard]] std::int64_t stride() const { return contents_.input + repeated_; }
  [[nodiscard]] std::int64_t turns_of_backward() const { return contents_.gradients ? 2 : 1; }
  // Such a place in a turn of segment `first`. It is as many slots later in each segment, and so
  // many turns.
  [[nodiscard]] Version at(std::int64_t slot, std::int64_t turn, std::int64_t turns) const;
  [[nodiscard]] Version in_backward(std::int64_t slot, std::int64_t turn) const;

  Contents contents_;
  std::int64_t repeated_ = 0;        // slots, of the class that repeats most
  std::vector<std::int64_t> base_;   // of a class: slots for layers of the classes before
  std::vector<std::int64_t> first_;  // of a class: its first layer
  std::int64_t slots_ = 0;
};

}  // namespace fpdt
