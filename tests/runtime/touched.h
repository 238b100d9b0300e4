// Finds the bytes that a step changed.
//
// The whole arena is filled with a pattern, states and inputs are set, and a step runs. This is
// repeated with the complementary pattern. A byte that holds the pattern both times was not
// written. The written bytes must be exactly the union of the written operands: fewer means that an
// op leaves a hole, more means that an op writes outside its operands (everything between buffers
// is a guard zone). They must be the same in both runs, or some op read a byte that nobody wrote.
// Scratch bytes are free: a kernel may leave anything there, or not touch them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fpdt/runtime/accounts.h"

namespace fpdt {

// Runs the calls twice. `reset` sets every slot of states and inputs, the same way each time. All
// ranks of a job call this together. Needs three times the arena in host memory while it runs.
std::vector<Account> account_touched(Executor& executor, std::span<const Call> calls,
                                     const std::function<void()>& reset);

}  // namespace fpdt
