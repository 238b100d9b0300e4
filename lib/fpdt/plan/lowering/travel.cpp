// Emits the exchanges of a ring.
#include "fpdt/plan/lowering/travel.h"

namespace fpdt {

Travel::Travel(Context& context)
    : LoweringPart(context),
      gradient_(rows_of_width("dkv_pass", shape_.key_rows(0), kv_width(), storage_,
                              overlaps() ? 2 : 1)) {}

// Numbers the hops of this block, in the order in which keys arrive.
Instance Travel::arrival(const LayerFrame& frame, std::int64_t hop) const {
  return Version::plus(frame.arrivals + (frame.back ? frame.hops - 1 - hop : hop - 1));
}

Operand Travel::keys(LayerFrame& frame, std::int64_t hop, std::int64_t chunk) {
  Homes& homes = *frame.homes;
  if (hop == 0) return homes.kv.fetch(builder_, inputs(frame), chunk, reuse(), LaneKind::h2d);
  // Not from the ring in which they arrived: `pass` may need its slot.
  return keys_from_others(frame).fetch(builder_, arrival(frame, hop), chunk, Home::Reuse::latest,
                                       LaneKind::h2d);
}

void Travel::pass(LayerFrame& frame, std::int64_t hop, std::int64_t chunk, const Operand& keys) {
  const std::int64_t next = frame.back ? hop - 1 : hop + 1;
  if (next <= 0 || next >= frame.hops) return;
  const std::int64_t forward = this->next(frame, chunk);
  send_keys(frame, next, chunk, keys, frame.back ? shape_.hops - forward : forward);
}

void Travel::send_keys(LayerFrame& frame, std::int64_t to_hop, std::int64_t chunk,
                       const Operand& keys, std::int64_t places) {
  Home& home = keys_from_others(frame);
  const Instance instance = arrival(frame, to_hop);
  const Operand arrived = home.produce(builder_, instance, chunk);
  builder_.emit(
      builder_.name("pass_{}kv.{}.{}", frame.back ? "back_" : "", chunk, to_hop), LaneKind::comm,
      Exchange{"ring", {keys_of_hop(frame, keys, chunk, to_hop)}, {{arrived, false}}, places});
  home.spill(builder_, instance, chunk, arrived, out_lane());
}

void Travel::begin_backward(LayerFrame& frame) {
  frame.back = true;
  for (std::int64_t chunk = 0; chunk < shape_.chunks && frame.hops > 1; ++chunk) {
    send_keys(frame, frame.hops - 1, chunk, keys(frame, 0, chunk),
              (frame.hops - 1) * next(frame, chunk));
  }
}

void Travel::pass_gradient(LayerFrame& frame, std::int64_t hop, std::int64_t chunk,
                           const Operand& part) {
  Home& home = gradients_from_others(frame);
  const std::int64_t turn = frame.hops - 1 - hop;
  if (turn > 0) {
    const Operand arrived =
        home.fetch(builder_, Version::plus(turn - 1), chunk, Home::Reuse::none, LaneKind::h2d);
    builder_.emit(builder_.name("add_dkv.{}.{}", chunk, hop), LaneKind::compute,
                  Copy{arrived, {keys_of_hop(frame, part, chunk, hop + 1), true}});
  }
  if (hop == 0) return;
  Operand sent = part;
  if (strategy_.key_gradients != Storage::f32 && storage_ != Dtype::f32) {
    sent = temporary(gradient_, key_rows(frame, chunk, hop));
    builder_.emit(builder_.name("round_dkv.{}.{}", chunk, hop), LaneKind::compute,
                  Copy{part, {sent, false}});
  }
  const Operand arrived = home.produce(builder_, Version::plus(turn), chunk);
  builder_.emit(builder_.name("pass_dkv.{}.{}", chunk, hop), LaneKind::comm,
                Exchange{"ring", {sent}, {{arrived, false}}, shape_.hops - next(frame, chunk)});
  home.spill(builder_, Version::plus(turn), chunk, arrived, out_lane());
}

void Travel::advance(const LayerFrame& frame) const {
  if (shape_.hops == 1) return;
  const Homes& homes = *frame.homes;
  const std::int64_t hops = frame.hops - 1;
  homes.kv_ring.advance(builder_, frame.arrivals + (frame.back ? hops : 0));
  homes.attention_sum.advance(builder_, shape_.hops);
  homes.lse_sum.advance(builder_, shape_.hops);
  if (frame.back) homes.dkv_ring.advance(builder_, hops);
}

}  // namespace fpdt
