// The contents of a schedule's buffers, derived from the ops that read them.
#pragma once

#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// For each buffer: "tokens", "labels" or "documents" if its contents reach ops as that field;
// "gradient" if they become a gradient; else "". Precondition: the schedule is verified, which
// makes the answer unique.
std::vector<std::string_view> purposes_of(const Schedule& schedule);

}  // namespace fpdt
