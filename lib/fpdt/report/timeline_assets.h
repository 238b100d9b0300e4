// timeline_data.js, timeline_draw.js, timeline.js and timeline.css, which CMake turns into
// timeline_assets.cpp. Internal to report.
#pragma once

#include <string_view>

namespace fpdt {

extern const std::string_view kTimelineScript;
extern const std::string_view kTimelineStyle;

}  // namespace fpdt
