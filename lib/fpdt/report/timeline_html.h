// A step over time as one HTML file that needs no other: hovering shows op, operands and live
// bytes, the wheel zooms, dragging and arrow keys move, and a click on a name of the legend hides
// what it names.
#pragma once

#include <string>

#include "fpdt/report/timeline.h"

namespace fpdt {

// The picture's zoom is not used: the reader zooms.
std::string timeline_html(const TimelinePicture& picture);

}  // namespace fpdt
