// The check before a long run: the strategy of a schedule, in a problem that the reference can
// compute.
#pragma once

#include <string>

#include "run/job.h"

namespace fpdt {

// Lowers the strategy again for a narrow problem (fpdt/plan/narrow.h), checks that schedule on
// CPUs, and says what was checked. Throws an Error with exit code 4 where it disagrees with the
// reference, and InputError if the file has no hash: it may hold something else than its strategy
// lowers to.
void check_first(const Job& job, const std::string& path);

}  // namespace fpdt
