// Why nothing fits, what is near and fits, and what others do in such a case but fpdt does not.
#pragma once

#include <string>

#include "plan/answer.h"

namespace fpdt {

// Whether nothing fits for certain: the given strategy, or by the bound all of them.
bool proven_infeasible(const Answer& answer);

// The shortage of an answer without a plan.
std::string shortage_text(const Answer& answer);
Json shortage_json(const Answer& answer);

}  // namespace fpdt
