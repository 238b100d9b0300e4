// A step over time as one self-contained HTML file. Hovering shows op, operands and live bytes, the
// wheel zooms, dragging and arrow keys move, and a click on a name in the legend hides its items.
#pragma once

#include <string>

#include "fpdt/report/timeline.h"

namespace fpdt {

// The picture's zoom is ignored: the reader zooms.
std::string timeline_html(const TimelinePicture& picture);

}  // namespace fpdt
