// What the ops of a schedule take the contents of its i32 buffers for.
#pragma once

#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Of each buffer: "tokens", "labels" or "documents", as the fields of ops that it reaches are
// called; "" where it reaches none. Precondition: the schedule is verified, so that there is one.
std::vector<std::string_view> purposes_of(const Schedule& schedule);

}  // namespace fpdt
