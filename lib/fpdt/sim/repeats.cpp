// States are looked up by their running lanes only; other lanes may be anywhere.
#include "fpdt/sim/repeats.h"

#include <utility>

namespace fpdt {

std::int64_t Repeats::add(LaneState state, std::int32_t block) {
  std::uint64_t hash = 1469598103934665603U;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
    hash ^= hash >> 29U;
  };
  mix(block);
  for (const LaneView& lane : state.lanes) {
    mix(lane.remaining);
    if (lane.remaining < 0) continue;
    mix(lane.call - state.oldest);
    mix(lane.step);
  }
  const auto number = static_cast<std::int64_t>(kept_.size());
  const auto [place, fresh] = latest_.try_emplace(hash, number);
  const std::int64_t earlier = fresh ? -1 : std::exchange(place->second, number);
  kept_.push_back({std::move(state), earlier});
  return earlier;
}

}  // namespace fpdt
