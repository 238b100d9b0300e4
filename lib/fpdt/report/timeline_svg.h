// A step over time as one SVG: device memory, pinned host memory, calls and lanes, and below them
// one call op by op. White, with system fonts.
#pragma once

#include <string>

#include "fpdt/report/timeline.h"

namespace fpdt {

// In pixels. With a height the picture is a slide: larger text, without the single call, and
// without pinned host memory if there is little room.
struct PictureSize {
  double width = 1400;
  double height = 0;  // 0: what the contents take
};

// InputError if the height is too small for the lanes.
std::string timeline_svg(const TimelinePicture& picture, const PictureSize& size = {});

}  // namespace fpdt
