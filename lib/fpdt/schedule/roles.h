// What the buffers of a schedule hold, by the ops that read them.
#pragma once

#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// For each buffer: "tokens", "labels" or "documents", which are the fields of ops that its contents
// reach; "gradient" if they become a gradient; else "". Precondition: the schedule is verified, so
// that there is one answer.
std::vector<std::string_view> purposes_of(const Schedule& schedule);

}  // namespace fpdt
