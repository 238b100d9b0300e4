// Keys that go around a ring (Liu et al., arXiv 2310.01889), a chunk at a time, and the gradients
// that follow them home.
//
// Hop h of forward meets the keys of the h-th member before this one: each chunk goes on to the
// next member while this one's tiles use it. Backward goes the other way, from the keys that are
// furthest from home to its own. Every member adds its part to their gradients and gives them to
// the member that has the keys next, so that they reach home with the last part.
//
// In a layer with a window, queries see the keys of a few members before this one. Only these are
// hops then. Where that is the member with the run before alone, it sends only the last keys of the
// run, those that a query of the next one sees: a halo. In chunks of the opposite order that is the
// member after this one.
#pragma once

#include "fpdt/plan/lowering/context.h"

namespace fpdt {

class Travel : public LoweringPart {
 public:
  explicit Travel(Context& context);

  // The keys and values of a chunk at this hop. Own ones are at hop 0.
  Operand keys(LayerFrame& frame, std::int64_t hop, std::int64_t chunk);
  // Gives them to the member that uses them next, if there is one.
  void pass(LayerFrame& frame, std::int64_t hop, std::int64_t chunk, const Operand& keys);
  // Brings the keys of the first hop of backward.
  void begin_backward(LayerFrame& frame);
  // Adds what came with the keys to this rank's part of their gradient, and passes on the sum.
  // After hop 0 it is complete.
  void pass_gradient(LayerFrame& frame, std::int64_t hop, std::int64_t chunk, const Operand& part);
  // Moves the bases of the homes at the end of a block.
  void advance(const LayerFrame& frame) const;

 private:
  // The homes of what comes from others.
  static Home& keys_from_others(LayerFrame& frame) {
    return frame.halo.rows > 0 ? frame.halo.kv_ring : frame.homes->kv_ring;
  }
  static Home& gradients_from_others(LayerFrame& frame) {
    return frame.halo.rows > 0 ? frame.halo.dkv_ring : frame.homes->dkv_ring;
  }
  [[nodiscard]] Instance arrival(const LayerFrame& frame, std::int64_t hop) const;
  // Places from a member to that which uses its halo next.
  [[nodiscard]] std::int64_t next(const LayerFrame& frame, std::int64_t chunk) const {
    return frame.halo.rows > 0 && shape_.reversed(chunk) ? shape_.hops - 1 : 1;
  }
  // To the member so many places after this one.
  void send_keys(LayerFrame& frame, std::int64_t to_hop, std::int64_t chunk, const Operand& keys,
                 std::int64_t places);

  BufferId gradient_;  // of a chunk's keys, rounded for the way
};

}  // namespace fpdt
