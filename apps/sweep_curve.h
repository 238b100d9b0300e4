// The curves of a sweep: utilisation, memory beside its budgets, time.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace fpdt {

// "llama3-8b at 2M tokens on a100-80g-x4, over chunk lengths".
std::string sweep_title(const Question& question, Over over);
// What each point is, in a sentence.
std::string sweep_subtitle(const std::vector<SweepPoint>& points);

std::string sweep_curve(const Question& question, Over over, const std::vector<SweepPoint>& points);

}  // namespace fpdt
