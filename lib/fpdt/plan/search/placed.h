// The bytes of a search's strategies after placement.
//
// To place a long step takes seconds, and to predict its bytes a millisecond. So a search looks at
// steps with fewer chunks and layers first.
#pragma once

#include <optional>

#include "fpdt/plan/fit.h"

namespace fpdt {

// How many bytes less than predicted a device and a node's host need after placement.
struct Room {
  Bytes device, host;
  bool operator==(const Room&) const = default;
};
Room room_of(const Problem& problem, const Strategy& strategy, const Usage& placed);
Room placement_gain(const Problem& problem, const Strategy& strategy);
// The problem with that much more of both.
Problem with_room(Problem problem, const Room& room);
Bytes part(Bytes whole, double share);

// What placement saves with a few of many chunks: as much as with all, or at most a quarter of a
// GiB less, for a hundredth of the work. None if there are few.
std::optional<Room> gain_of_few_chunks(const Problem& problem, const Strategy& strategy);

// Whether a strategy may fit after placement, by that of a few of its chunks.
bool may_fit_placed(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
