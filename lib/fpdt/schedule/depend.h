// Derives the `after` edges of a schedule. A lowering writes only ops, lanes and order.
//
// The rules: a read waits for the writes and accumulates of its version; an accumulate waits for
// the earlier writes and accumulates of its rows; a write waits for every access of the version
// that its slot held before (the credit of a ring). Lane order and other edges make some waits
// redundant, and those get no edge: the result is reduced transitively, so that the op needs each
// of its edges in some call.
//
// One static edge serves every call of its block. Edges are found on a window of the call lists and
// confirmed on the whole lists. Of long runs of micro-batches and of segments, the window has the
// first and last two; of layers, four.
#pragma once

#include <cstddef>
#include <vector>

#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Replaces every op's `after`. Precondition: references resolve. A read of a version that no op
// wrote gets no edge; the verifier reports it.
void depend(Schedule& schedule);
// The same edges for the ops of a program alone, whose schedule may be without ops.
void depend(Program& program);

// The calls that depend looks at first, as indices into `calls`: the middle of long runs is left
// out.
std::vector<std::size_t> window(const std::vector<Call>& calls);

}  // namespace fpdt
