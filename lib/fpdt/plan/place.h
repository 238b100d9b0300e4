// Placement: an offset for every buffer, so that two share bytes only when the schedule orders
// their lives.
//
// Placement adds no edges, so seconds do not depend on offsets. A buffer (a ring with all its
// slots) is placed as one range. Two buffers may share bytes when each life (a version, from its
// first write to its last access) of one is ordered before or after each life of the other. State,
// input and output share with nothing. Three numbers bound each other: live <= bound <= arena.
#pragma once

#include <array>

#include "fpdt/base/units.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

struct SpaceUse {
  Bytes live;   // open lives at the heaviest moment of the schedule in file order
  Bytes bound;  // of the heaviest set found whose buffers may not share: a lower bound
  Bytes arena;  // size of this placement
};

struct Placement {
  std::array<SpaceUse, 3> space{};  // by MemorySpace
  [[nodiscard]] const SpaceUse& of(MemorySpace which) const {
    return space[static_cast<std::size_t>(which)];
  }
};

// Takes temporary buffers that no op uses out of the schedule: where a step has one chunk, say,
// nothing uses the ring on the host to which others would spill. They would take room beside
// states.
void leave_out_unused(Schedule& schedule);

// Sets every buffer's offset. Precondition: edges are complete (depend).
Placement place(Schedule& schedule);
// The bytes of such a placement of the buffers that a program uses. Precondition: as above.
Placement placement_of(const Program& program);

}  // namespace fpdt
