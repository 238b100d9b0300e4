// Lays the picture out from top to bottom.
#include "fpdt/report/timeline_svg.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/timeline_panels.h"

namespace fpdt {
namespace {

// Styles in addition to those of all pictures.
constexpr std::string_view kTimelineStyle =
    ".fact{font-size:15px;font-weight:600}.factname{font-size:12px;fill:#616E7C}"
    ".heading2{font-size:12.5px;font-weight:600}.row{font-size:12px}"
    ".axis{font-size:11.5px;fill:#616E7C}"
    ".lane{font-size:13px;font-weight:600}.level{font-size:11.5px;font-weight:600}"
    ".flag{font-size:12px;font-weight:600;fill:#FFFFFF}.call{font-size:11.5px}"
    ".on{font-size:10.5px;fill:#FFFFFF}.over{font-size:10.5px}";

double fact_width(const Fact& fact) {
  return std::max(text_width(fact.name, 12), text_width(fact.text, 15, Weight::bold));
}

double draw_head(Svg& svg, const TimelineData& data, double y) {
  constexpr double kGap = 32;  // between facts
  const TimelinePicture& picture = *data.picture;
  const double width = kColumnRight - kPictureMargin;
  svg.text(kPictureMargin, y, fit_text(picture.title, 25, width, Weight::bold), "title");
  y += 25;
  for (const std::string& line : wrap_text(picture.subtitle, 15, width)) {
    svg.text(kPictureMargin, y, line, "subtitle");
    y += 19;
  }
  y += 14;
  double x = kPictureMargin;
  for (const Fact& fact : facts(data)) {
    if (x > kPictureMargin && x + fact_width(fact) > kColumnRight) {
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

bool has_pinned(const Schedule& schedule) {
  return std::any_of(schedule.buffers.begin(), schedule.buffers.end(),
                     [](const Buffer& buffer) { return buffer.space == MemorySpace::host_pinned; });
}

double draw_overview(Svg& svg, const TimelineData& data, const Window& window, double y) {
  y += 32;
  const double top = y;
  draw_memory(svg, data, window, {MemorySpace::device, y, 250, false});
  y += 250;
  if (has_pinned(*data.live.schedule)) {
    y += 40;
    draw_memory(svg, data, window, {MemorySpace::host_pinned, y, 160, false});
    y += 160;
  }
  y += 30;
  draw_calls(svg, data, window, y);
  y += calls_height();
  draw_lanes(svg, data, window, y, true);
  y += lanes_height(data);
  draw_time_axis(svg, window, top, y);
  return y + 28;
}

// Marks the part of the overview that is zoomed, with lines that lead to the zoom.
void draw_funnel(Svg& svg, const Window& overview, const Window& window, double top,
                 double bottom) {
  const double left = overview.x(window.from);
  const double right = overview.x(window.to);
  svg.path(fmt::format("M{} {}L{} {}L{} {}L{} {}Z", coordinate(left), coordinate(top),
                       coordinate(right), coordinate(top), coordinate(kPlotRight),
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
  svg.text(kColumnLeft, y + 4, "in detail", "heading2");
  svg.text(
      kColumnLeft, y + 22,
      fmt::format("{}, layer {}",
                  phase_of(schedule.blocks[static_cast<std::size_t>(call.block)].name), call.layer),
      "row");
  svg.text(kColumnLeft, y + 39, format_nanoseconds(window.to - window.from), "row");
  if (!data.drawn.empty()) {
    svg.text(kColumnLeft, y + 56, "all from the first op of the block", "soft");
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

}  // namespace

std::string timeline_svg(const TimelinePicture& picture) {
  const TimelineData data = timeline_data(picture);
  const Window overview{data.live.begin, std::max(data.end, data.live.begin + 1), 0};
  Svg svg;
  double y = draw_head(svg, data, 46);
  y = draw_overview(svg, data, overview, y);
  if (!picture.zoom.empty()) {
    const Window detail = detail_window(data);
    if (detail.from < detail.to) y = draw_detail(svg, data, overview, detail, y);
  }
  return svg.finish(kPictureWidth, y + 16, picture.title,
                    fmt::format("{}{}", kLook, kTimelineStyle));
}

}  // namespace fpdt
