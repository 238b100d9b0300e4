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

}  // namespace fpdt
