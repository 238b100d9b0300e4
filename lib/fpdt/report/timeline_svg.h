// A step over time as one SVG: device memory, pinned host memory, calls and lanes, and below them
// one call op by op. Made for slides: 1400 pixels wide, white, system fonts.
#pragma once

#include <string>

#include "fpdt/report/timeline.h"

namespace fpdt {

std::string timeline_svg(const TimelinePicture& picture);

}  // namespace fpdt
