// What a step changed, byte by byte.
//
// The whole arena is filled with a pattern, states and inputs are set, a step runs; then the same
// with the complementary pattern. A byte that still holds the pattern both times was not written.
// What was written must be the union of the written operands: not less (an op that leaves a hole),
// not more (an op that leaves its operands: everything between buffers is a guard zone). Written
// bytes must be the same in both runs, or some op read what nobody wrote. Bytes that an op uses as
// scratch are free: its kernel may leave anything there, or not touch them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fpdt/runtime/accounts.h"

namespace fpdt {

// Runs the calls twice. `reset` sets every slot of states and inputs, the same way each time. All
// ranks of a job call it together. Needs three times the arena in host memory while it runs.
std::vector<Account> account_touched(Executor& executor, std::span<const Call> calls,
                                     const std::function<void()>& reset);

}  // namespace fpdt
