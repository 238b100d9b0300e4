// Settings of a strategy that have no effect beside the others.
#pragma once

#include "fpdt/spec/strategy.h"

namespace fpdt {

// The strategy without them, so that one schedule has one strategy. `without_effect` says of each
// why it has none.
Strategy without_unused(const Problem& problem, Strategy strategy);

}  // namespace fpdt
