// Curves as a page: the picture, in which every point says what it stands for, and its numbers in
// tables.
#pragma once

#include <string>

#include "fpdt/report/curve_svg.h"

namespace fpdt {

// One file that needs no network.
std::string curve_html(const CurvePicture& picture);

}  // namespace fpdt
