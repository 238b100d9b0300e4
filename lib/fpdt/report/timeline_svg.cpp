// Lays the picture out from top to bottom.
#include "fpdt/report/timeline_svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/timeline_panels.h"

namespace fpdt {
namespace {

// Styles in addition to those of all pictures.
constexpr std::string_view kTimelineSvgStyle =
    ".fact{font-size:15px;font-weight:600}.factname{font-size:12px;fill:#616E7C}"
    ".heading2{font-size:12.5px;font-weight:600}.row{font-size:12px}"
    ".axis{font-size:11.5px;fill:#616E7C}"
    ".lane{font-size:13px;font-weight:600}.level{font-size:11.5px;font-weight:600}"
    ".flag{font-size:12px;font-weight:600;fill:#FFFFFF}.call{font-size:11.5px}"
    ".on{font-size:10.5px;fill:#FFF}.over{font-size:10.5px;fill:#111}";

constexpr double kBelowPicture = 16;

double fact_width(const Fact& fact) {
  return std::max(text_width(fact.name, 12), text_width(fact.text, 15, Weight::bold));
}

double draw_head(Svg& svg, const TimelineData& data, const Frame& frame, double y) {
  constexpr double kGap = 32;  // between facts
  const TimelinePicture& picture = *data.picture;
  const double width = frame.column_right() - kPictureMargin;
  svg.text(kPictureMargin, y, fit_text(picture.title, 25, width, Weight::bold), "title");
  y += 25;
  for (const std::string& line : wrap_text(picture.subtitle, 15, width)) {
    svg.text(kPictureMargin, y, line, "subtitle");
    y += 19;
  }
  y += 14;
  double x = kPictureMargin;
  for (const Fact& fact : facts(data)) {
    if (x > kPictureMargin && x + fact_width(fact) > frame.column_right()) {
      x = kPictureMargin;
      y += 44;
    }
    svg.text(x, y, fact.name, "factname");
    svg.text(x, y + 19, fact.text, "fact");
    x += fact_width(fact) + kGap;
  }
  y += 30;
  for (const std::string& line : wrap_text(key_to_ranks(data), 11, width)) {
    svg.text(kPictureMargin, y + 12, line, "soft");
    y += 16;
  }
  return y;
}

// The heights of the memory panels; 0: the panel is left out.
struct Heights {
  double device = 250;
  double host = 160;
};
constexpr double kAboveMemory = 32;
constexpr double kBetweenMemory = 40;
constexpr double kAboveCalls = 30;
constexpr double kBelowLanes = 28;

double draw_overview(Svg& svg, const TimelineData& data, const Window& window,
                     const Heights& heights, double y) {
  y += kAboveMemory;
  const double top = y;
  draw_memory(svg, data, window, {MemorySpace::device, y, heights.device, false});
  y += heights.device;
  if (heights.host > 0) {
    y += kBetweenMemory;
    draw_memory(svg, data, window, {MemorySpace::host_pinned, y, heights.host, false});
    y += heights.host;
  }
  y += kAboveCalls;
  draw_calls(svg, data, window, y);
  y += calls_height();
  draw_lanes(svg, data, window, y, true);
  y += lanes_height(data);
  draw_time_axis(svg, window, top, y);
  return y + kBelowLanes;
}

// Marks the part of the overview that is zoomed, with lines that lead to the zoom.
void draw_funnel(Svg& svg, const Window& overview, const Window& window, double top,
                 double bottom) {
  const double left = overview.x(window.from);
  const double right = overview.x(window.to);
  svg.path(fmt::format("M{} {}L{} {}L{} {}L{} {}Z", coordinate(left), coordinate(top),
                       coordinate(right), coordinate(top), coordinate(window.frame.plot_right()),
                       coordinate(bottom), coordinate(kPlotLeft), coordinate(bottom)),
           "#3E4C59", "fill-opacity=\"0.07\"");
}

double draw_detail(Svg& svg, const TimelineData& data, const Window& overview, const Window& window,
                   double y) {
  const TimelinePicture& picture = *data.picture;
  const Schedule& schedule = *data.live.schedule;
  const double band_left = overview.x(window.from);
  svg.rectangle(band_left, y - 28 - lanes_height(data) - calls_height(),
                std::max(overview.x(window.to) - band_left, 1.0),
                lanes_height(data) + calls_height(), "#3E4C59", "fill-opacity=\"0.12\"");
  draw_funnel(svg, overview, window, y - 28, y + 36);
  y += 60;
  const Call& call = (*picture.run.calls)[static_cast<std::size_t>(picture.zoom.first)];
  svg.text(window.frame.column_left(), y + 4, "in detail", "heading2");
  svg.text(
      window.frame.column_left(), y + 22,
      fmt::format("{}, layer {}",
                  phase_of(schedule.blocks[static_cast<std::size_t>(call.block)].name), call.layer),
      "row");
  svg.text(window.frame.column_left(), y + 39, format_nanoseconds(window.to - window.from), "row");
  if (!data.drawn.empty()) {
    svg.text(window.frame.column_left(), y + 56, "all from the first op of the block", "soft");
  }
  const double top = y;
  draw_memory(svg, data, window, {MemorySpace::device, y, 120, true});
  y += 120 + 24;
  draw_calls(svg, data, window, y);
  y += calls_height();
  draw_lanes(svg, data, window, y, true);
  y += lanes_height(data);
  draw_time_axis(svg, window, top, y);
  return y + 28;
}

// When the calls run on the compute lane.
Window window_of(const LaneTimes& times, const CallRange& calls, std::int64_t begin,
                 std::int64_t end) {
  Window window{end, begin, 0};
  for (const CallBar& bar : times.calls) {
    if (bar.call < calls.first || bar.call >= calls.last) continue;
    window.from = std::min(window.from, bar.begin);
    window.to = std::max(window.to, bar.end);
  }
  return window;
}

// The window of the zoomed calls; measured runs are aligned at the first op of any rank.
Window detail_window(const TimelineData& data) {
  Window window = window_of(data.times, data.picture->zoom, data.live.begin, data.live.end);
  if (data.drawn.empty()) return window;
  Window all{data.end, 0, 0};
  for (const std::size_t rank : data.drawn) {
    const Window one = window_of(data.ranks[rank], data.picture->zoom, 0, data.end);
    all.from = std::min(all.from, one.from);
    all.to = std::max(all.to, one.to);
  }
  window.shift = all.from - window.from;
  window.to = std::max(window.to, window.from + all.to - all.from);
  return window;
}

// The heights of the memory panels on a slide of `height`, of which the head takes `head`.
Heights slide_heights(const TimelineData& data, double head, double height) {
  constexpr double kLeast = 110;
  const double room = height - head - kAboveMemory - kAboveCalls - calls_height() -
                      lanes_height(data) - kBelowLanes - kBelowPicture;
  if (room < kLeast) {
    throw InputError(fmt::format("the picture is too low for its lanes; make it {:.0f} % higher",
                                 std::ceil(100 * (kLeast - room) / height)));
  }
  const bool both = has_pinned(*data.live.schedule) && room >= 2 * kLeast + kBetweenMemory;
  if (!both) return {room, 0};
  const double host = std::max(kLeast, 0.4 * (room - kBetweenMemory));
  return {room - kBetweenMemory - host, host};
}

}  // namespace

std::string timeline_svg(const TimelinePicture& picture, const PictureSize& size) {
  // Text of a slide is read from afar. A narrower layout, scaled up, makes it larger.
  constexpr double kSlideWidth = 1240;
  const bool slide = size.height > 0;
  const TimelineData data = timeline_data(picture);
  const Frame frame{slide ? kSlideWidth : kPictureWidth};
  const double scale = size.width / frame.width;
  const Window overview{data.live.begin, std::max(data.end, data.live.begin + 1), 0, frame};
  Svg svg;
  double y = draw_head(svg, data, frame, 46);
  Heights heights = slide ? slide_heights(data, y, size.height / scale) : Heights{};
  if (!has_pinned(*data.live.schedule)) heights.host = 0;
  y = draw_overview(svg, data, overview, heights, y);
  // Rows of several ranks fill a page alone.
  if (!picture.zoom.empty() && !slide && data.ranks.size() <= 1) {
    const Window detail = detail_window(data);
    if (detail.from < detail.to) y = draw_detail(svg, data, overview, detail, y);
  }
  return svg.finish(frame.width, slide ? size.height / scale : y + kBelowPicture, picture.title,
                    fmt::format("{}{}", kLook, kTimelineSvgStyle), scale);
}

}  // namespace fpdt
