// A step over time as one HTML file that needs nothing else: hover tells op, operands and live
// bytes, the wheel zooms, dragging and arrows move, names in the legend hide what they name.
#pragma once

#include <string>

#include "fpdt/report/timeline.h"

namespace fpdt {

// The picture's zoom is not used: the reader zooms.
std::string timeline_html(const TimelinePicture& picture);

}  // namespace fpdt
