// The shared style of all SVG pictures: width, inks and letters. Internal to report.
#pragma once

#include <string_view>

namespace fpdt {

inline constexpr double kPictureWidth = 1400;
inline constexpr double kPictureMargin = 28;
inline constexpr double kPlotLeft = 144;
inline constexpr double kPlotRight = 1056;
inline constexpr double kColumnLeft = 1088;
inline constexpr double kColumnRight = 1372;
inline constexpr std::string_view kInk = "#1F2933";
inline constexpr std::string_view kSoftInk = "#616E7C";
inline constexpr std::string_view kRule = "#D9DEE4";
inline constexpr std::string_view kPaper = "#F7F9FB";  // behind a plot
inline constexpr std::string_view kAlarm = "#C4320A";

// Each picture adds classes of its own.
inline constexpr std::string_view kLook =
    "text{font-family:Inter,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,"
    "sans-serif;fill:#1F2933;font-variant-numeric:tabular-nums}"
    ".title{font-size:25px;font-weight:600}.subtitle{font-size:15px;fill:#52606D}"
    ".heading{font-size:14px;font-weight:600}.soft{font-size:11px;fill:#616E7C}";

}  // namespace fpdt
