// What becomes of layer inputs and attention outputs: as text, JSON and picture, from one source.
#pragma once

#include <string>

#include "fpdt/plan/plan.h"

#include "common/command.h"
#include "common/picture.h"

namespace fpdt {

std::string residency_text(const Problem& problem, const Strategy& strategy);
Json residency_json(const Problem& problem, const Strategy& strategy);
// Writes .svg or .png.
void draw_residency(const std::string& path, const Problem& problem, const Plan& plan,
                    const PictureFlags& flags);

}  // namespace fpdt
