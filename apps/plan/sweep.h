// Points of a sweep from its flag, and their curves.
#pragma once

#include <string>
#include <vector>

#include "fpdt/plan/answers/sweep.h"
#include "fpdt/report/curve_svg.h"

#include "plan/figures.h"
#include "plan/question.h"

namespace fpdt {

// The points, unanswered and ascending: of the values given, separated by commas, or of the usual
// ones. InputError names the entry that is wrong.
std::vector<SweepPoint> sweep_points(const Question& question, Over over, const std::string& values,
                                     const OnProgress& progress = {});

// "llama3-8b at 2M tokens on a100-80g-x4, over chunk lengths".
std::string sweep_title(const Question& question, Over over);
// A sentence that says what each point is.
std::string sweep_subtitle(const std::vector<SweepPoint>& points);
// Curves of utilisation, memory beside its budgets, and time; with experts, also of what is sent.
CurvePicture sweep_picture(const Question& question, Over over,
                           const std::vector<SweepPoint>& points);

}  // namespace fpdt
