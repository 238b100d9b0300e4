// Which buffers may be alive while a call computes.
//
// Copies and collectives run beside the compute ops of other calls. How far ahead or behind follows
// from what ops wait for: values that they read, slots that they write, and the order of their
// lanes (schedule/hazards.h). Nothing is assumed about seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/schedule/expand.h"

namespace fpdt {

// A call with compute ops. A buffer is alive in it if a life of the buffer may overlap it: some op
// of the life may begin before the last compute op of the call ends, and some may not have ended
// when the first one begins.
struct Phase {
  std::int32_t block = 0;
  std::vector<bool> alive;  // by buffer
};

// The phases of a call list of the program's schedule, in order. It needs no edges.
// Precondition: each kind of lane has one lane at most, as in every schedule that is lowered.
std::vector<Phase> phases(const Program& program, const std::vector<Call>& calls);

}  // namespace fpdt
