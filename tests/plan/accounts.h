// The accounts of a strategy that must agree.
#pragma once

#include <string>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Lowers the strategy, and expects closed form >= arena >= bound >= live in each space, in each
// block closed form >= buffers (`exact`: equal), and the messages of the closed form. `what` names
// the strategy in failures.
void expect_accounts(const Problem& problem, const Strategy& strategy, bool exact,
                     const std::string& what);

// Whether every ring of a spilled class turns with this number of chunks: it spills no chunk, or at
// least three.
bool all_rings_turn(const Geometry& shape, double keep);

}  // namespace fpdt
