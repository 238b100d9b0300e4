// The panels of the SVG timeline: memory over time, calls, lanes, time axis. Internal to report.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/look.h"
#include "fpdt/report/svg.h"
#include "fpdt/report/timeline.h"

namespace fpdt {

// The columns of a picture: the plot, and tables beside it.
struct Frame {
  double width = kPictureWidth;
  [[nodiscard]] double plot_right() const { return kPlotRight + width - kPictureWidth; }
  [[nodiscard]] double column_left() const { return kColumnLeft + width - kPictureWidth; }
  [[nodiscard]] double column_right() const { return kColumnRight + width - kPictureWidth; }
};

// Times [from, to) across the plot; measured runs are drawn `shift` earlier.
struct Window {
  std::int64_t from = 0;
  std::int64_t to = 1;
  std::int64_t shift = 0;
  Frame frame{};
  [[nodiscard]] Window measured() const { return {from + shift, to + shift, 0, frame}; }
  [[nodiscard]] double x(std::int64_t time) const {
    return kPlotLeft + (frame.plot_right() - kPlotLeft) * static_cast<double>(time - from) /
                           static_cast<double>(to - from);
  }
};

// Panels draw from `top` down; heights are those of the plot without its heading.
struct MemoryPanel {
  MemorySpace space = MemorySpace::device;
  double top = 0;
  double height = 0;
  bool detail = false;  // temporaries alone, no table beside it
};
void draw_memory(Svg& svg, const TimelineData& data, const Window& window,
                 const MemoryPanel& panel);

double calls_height();
void draw_calls(Svg& svg, const TimelineData& data, const Window& window, double top);

double lanes_height(const TimelineData& data);
// With measured ranks, a row for the run and one for each drawn rank below the name of the lane.
// `legend`: the kinds and their times in the column beside the lanes.
void draw_lanes(Svg& svg, const TimelineData& data, const Window& window, double top, bool legend);

// Grid lines from `top` to `bottom` and their times below.
void draw_time_axis(Svg& svg, const Window& window, double top, double bottom);

// Areas of a stack of step functions, one path a layer. edges.size() = values[k].size() + 1; `base`
// is the y of zero and `scale` pixels a unit.
std::vector<std::string> stack_paths(const std::vector<double>& edges,
                                     const std::vector<std::vector<double>>& values, double base,
                                     double scale);

}  // namespace fpdt
