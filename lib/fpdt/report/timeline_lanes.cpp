// Lanes as rows: op by op where there is room, else the share of each kind in each pixel's time.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/timeline_panels.h"

namespace fpdt {
namespace {

constexpr double kRowHeight = 30;
constexpr double kRowGap = 8;
constexpr double kNameHeight = 17;  // above the rows of several runs
constexpr double kCallHeight = 22;
constexpr double kNothing = 0.0005;  // a share of less is written as 0.0 %

// The ops of a lane that touch the window.
std::pair<std::size_t, std::size_t> seen(const std::vector<LaneOp>& lane, const Window& window) {
  const auto first = std::partition_point(lane.begin(), lane.end(),
                                          [&](const LaneOp& op) { return op.end <= window.from; });
  const auto last = std::partition_point(first, lane.end(),
                                         [&](const LaneOp& op) { return op.begin < window.to; });
  return {index(first - lane.begin()), index(last - lane.begin())};
}

// Draws ops that all are at least a pixel wide.
void draw_each(Svg& svg, const TimelineData& data, const std::vector<LaneOp>& ops,
               const Window& window, double top, double height) {
  const Schedule& schedule = *data.live.schedule;
  const std::vector<Call>& calls = *data.picture->run.calls;
  for (const LaneOp& op : ops) {
    const double left = std::max(window.x(op.begin), kPlotLeft);
    const double width = std::min(window.x(op.end), window.frame.plot_right()) - left;
    // Leaves a white hairline between neighbours where there is room for one.
    const double drawn = width - (width > 3 ? 0.6 : 0);
    svg.begin_group(fmt::format("{}: {}", op_text(schedule, calls, op.place),
                                format_nanoseconds(op.end - op.begin)));
    svg.rectangle(left, top, drawn, height, color(op.kind));
    const Block& block = schedule.blocks[index(calls[index(op.place.call)].block)];
    const std::string& name = block.ops[index(op.place.op)].name;
    if (height >= 16 && width > text_width(name, 10.5) + 6) {
      svg.text(left + width / 2, top + height / 2 + 3.8, name, is_dark(op.kind) ? "on" : "over",
               Anchor::middle);
    }
    svg.end_group();
  }
}

void draw_shares(Svg& svg, const std::vector<LaneOp>& lane, const Window& window, double top,
                 double height) {
  const auto columns = static_cast<std::size_t>(window.frame.plot_right() - kPlotLeft);
  const double width = static_cast<double>(window.to - window.from) / static_cast<double>(columns);
  std::vector<std::vector<double>> shares(kOpKinds, std::vector<double>(columns, 0));
  std::vector<double> edges;
  for (std::size_t i = 0; i <= columns; ++i) edges.push_back(kPlotLeft + static_cast<double>(i));
  const auto [first, last] = seen(lane, window);
  for (std::size_t k = first; k < last; ++k) {
    const LaneOp& op = lane[k];
    const double begin = static_cast<double>(std::max(op.begin, window.from) - window.from);
    const double end = static_cast<double>(std::min(op.end, window.to) - window.from);
    for (auto i = static_cast<std::size_t>(begin / width); i < columns; ++i) {
      const double left = static_cast<double>(i) * width;
      if (left >= end) break;
      shares[static_cast<std::size_t>(op.kind)][i] +=
          std::max(0.0, std::min(end, left + width) - std::max(begin, left)) / width;
    }
  }
  const auto paths = stack_paths(edges, shares, top + height, height);
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    svg.path(paths[kind], color(static_cast<OpKind>(kind)));
  }
}

void draw_row(Svg& svg, const TimelineData& data, const std::vector<LaneOp>& lane,
              const Window& window, double top, double height) {
  svg.rectangle(kPlotLeft, top, window.frame.plot_right() - kPlotLeft, height, "#F0F3F6");
  const auto [first, last] = seen(lane, window);
  const double room = (window.frame.plot_right() - kPlotLeft) / 2.5;
  if (static_cast<double>(last - first) > room) {
    draw_shares(svg, lane, window, top, height);
    return;
  }
  // A bar for an op of less than a pixel would make its lane look busier than it is.
  std::vector<LaneOp> wide, narrow;
  for (std::size_t i = first; i < last; ++i) {
    const double left = std::max(window.x(lane[i].begin), kPlotLeft);
    const double right = std::min(window.x(lane[i].end), window.frame.plot_right());
    (right - left >= 1 ? wide : narrow).push_back(lane[i]);
  }
  draw_shares(svg, narrow, window, top, height);
  draw_each(svg, data, wide, window, top, height);
}

std::string lane_name(const Program& program, std::size_t lane) {
  const Lane& one = program.lanes[lane];
  const auto same = std::count_if(program.lanes.begin(), program.lanes.end(),
                                  [&](const Lane& other) { return other.kind == one.kind; });
  return same == 1 ? std::string(word(one.kind)) : fmt::format("{} {}", word(one.kind), one.index);
}

// The busy share of a lane in the part of the window in which the step runs.
double busy_share(const std::vector<LaneOp>& lane, const Window& window, std::int64_t end) {
  const std::int64_t to = std::min(window.to, end);
  return static_cast<double>(busy(lane, window.from, to)) /
         static_cast<double>(std::max(to - window.from, std::int64_t{1}));
}
std::string busy_text(const std::vector<LaneOp>& lane, const Window& window, std::int64_t end) {
  return format_percent(busy_share(lane, window, end), 1);
}

// One of several rows of a lane.
struct LaneRow {
  std::string name;
  const std::vector<LaneOp>* ops = nullptr;
  Window window;
  double busy = 0;
};

// The row of the run, then one of each drawn rank.
std::vector<LaneRow> rows_of(const TimelineData& data, const Window& window, std::size_t lane) {
  std::vector<LaneRow> rows;
  const auto add = [&](std::string name, const std::vector<LaneOp>& ops, const Window& its,
                       std::int64_t end) {
    rows.push_back({std::move(name), &ops, its, busy_share(ops, its, end)});
  };
  add(data.picture->run.trace->source, data.times.lanes[lane], window, data.live.end);
  for (const std::size_t rank : data.drawn) {
    const TracedRun& run = data.picture->measured[rank];
    add(label_of(data, rank), data.ranks[rank].lanes[lane], window.measured(),
        run.shift + duration(*run.trace));
  }
  return rows;
}

// The height of the row of a run; rows are lower if there are several.
double row_height(const TimelineData& data) {
  return data.drawn.size() > 4 ? 14 : (data.drawn.size() > 1 ? 17 : 20);
}

// Kinds and their times, in a column for the run and one for the mean of the ranks.
void draw_legend(Svg& svg, const TimelineData& data, const Window& window, double top) {
  const bool measured = !data.ranks.empty();
  const Window its = window.measured();
  const KindTimes sums = kind_times(data.times, window.from, window.to);
  const KindTimes others = mean_kind_times(data.ranks, its.from, its.to);
  double y = top;
  svg.text(window.frame.column_left(), y, "time on the lanes", "heading2");
  const double second = window.frame.column_right() - (measured ? 74 : 0);
  if (measured) {
    svg.text(second, y, data.picture->run.trace->source, "soft", Anchor::end);
    svg.text(window.frame.column_right(), y,
             data.ranks.size() == 1 ? data.picture->measured.front().trace->source
                                    : fmt::format("mean of {}", data.ranks.size()),
             "soft", Anchor::end);
  }
  y += 19;
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    if (sums[kind] == 0 && others[kind] == 0) continue;
    svg.rectangle(window.frame.column_left(), y - 9, 11, 11, color(static_cast<OpKind>(kind)),
                  "rx=\"2\"");
    const std::string taken = format_nanoseconds(sums[kind]);
    const double room = second - text_width(taken, 12) - 6 - window.frame.column_left() - 18;
    svg.text(window.frame.column_left() + 18, y,
             fit_text(word(static_cast<OpKind>(kind)), 12, room), "row");
    svg.text(second, y, taken, "row", Anchor::end);
    if (measured) {
      svg.text(window.frame.column_right(), y, format_nanoseconds(others[kind]), "row",
               Anchor::end);
    }
    y += 17;
  }
}

}  // namespace

double calls_height() { return kCallHeight + 6; }

void draw_calls(Svg& svg, const TimelineData& data, const Window& window, double top) {
  const std::vector<Call>& calls = *data.picture->run.calls;
  const std::vector<CallBar>& bars = data.times.calls;
  std::vector<std::string> phases;
  for (const Block& block : data.live.schedule->blocks) phases.push_back(phase_of(block.name));
  const auto phase = [&](std::size_t i) -> const std::string& {
    return phases[index(calls[index(bars[i].call)].block)];
  };
  svg.text(kPlotLeft - 10, top + 15, "blocks", "lane", Anchor::end);
  bool shade = false;
  std::size_t i = 0;
  while (i < bars.size() && bars[i].end <= window.from) ++i;
  while (i < bars.size() && bars[i].begin < window.to) {
    std::size_t end = i + 1;
    while (end < bars.size() && phase(end) == phase(i) && bars[end].begin < window.to) ++end;
    const std::string& name = phase(i);
    const double left = std::max(window.x(bars[i].begin), kPlotLeft);
    const double right = std::min(window.x(bars[end - 1].end), window.frame.plot_right());
    shade = !shade;
    if (right > left) {
      svg.begin_group(fmt::format("{}, {} calls", name, end - i));
      svg.rectangle(left, top, std::max(right - left, 0.6), kCallHeight,
                    shade ? "#DCE3EA" : "#C9D3DD");
      const double each = (right - left) / static_cast<double>(end - i);
      for (std::size_t k = i + 1; k < end && each > 4; ++k) {
        const double x = std::round(window.x(bars[k].begin));
        svg.rectangle(x, top, 1, kCallHeight, "#FFFFFF");
      }
      const std::string whole =
          end - i > 1 ? fmt::format("{} × {}", name, end - i)
                      : fmt::format("{}, layer {}", name, calls[index(bars[i].call)].layer);
      const std::string* label = &whole;
      if (text_width(*label, 11.5) + 8 > right - left) label = &name;
      if (text_width(*label, 11.5) + 8 <= right - left) {
        svg.text((left + right) / 2, top + 15, *label, "call", Anchor::middle);
      }
      svg.end_group();
    }
    i = end;
  }
}

double lanes_height(const TimelineData& data) {
  const auto runs = static_cast<double>(1 + data.drawn.size());
  double height = 0;
  for (std::size_t lane = 0; lane < data.times.lanes.size(); ++lane) {
    const double rows = data.drawn.empty() ? kRowHeight
                        : data.idle[lane]  ? row_height(data)
                                           : kNameHeight + runs * (row_height(data) + 1) - 1;
    height += rows + kRowGap;
  }
  return height;
}

void draw_lanes(Svg& svg, const TimelineData& data, const Window& window, double top, bool legend) {
  if (legend) draw_legend(svg, data, window, top - calls_height() + 8);
  const double height = row_height(data);
  for (std::size_t lane = 0; lane < data.times.lanes.size(); ++lane) {
    const std::vector<LaneOp>& ops = data.times.lanes[lane];
    const std::string name = lane_name(*data.picture->run.program, lane);
    if (data.drawn.empty()) {
      draw_row(svg, data, ops, window, top, kRowHeight);
      svg.text(kPlotLeft - 10, top + 13, name, "lane", Anchor::end);
      svg.text(kPlotLeft - 10, top + 26, busy_text(ops, window, data.live.end) + " busy", "soft",
               Anchor::end);
      top += kRowHeight + kRowGap;
      continue;
    }
    const std::vector<LaneRow> rows = rows_of(data, window, lane);
    if (data.idle[lane]) {
      const auto most =
          std::max_element(rows.begin(), rows.end(),
                           [](const LaneRow& a, const LaneRow& b) { return a.busy < b.busy; });
      draw_row(svg, data, ops, window, top, height);
      svg.text(kPictureMargin, top + height / 2 + 4.5, name, "lane");
      svg.text(kPlotLeft - 10, top + height / 2 + 4,
               (most->busy < kNothing ? "" : "≤ ") + format_percent(most->busy, 1), "soft",
               Anchor::end);
      top += height + kRowGap;
      continue;
    }
    svg.text(kPictureMargin, top + kNameHeight - 5, name, "lane");
    top += kNameHeight;
    for (const LaneRow& row : rows) {
      draw_row(svg, data, *row.ops, row.window, top, height);
      svg.text(kPictureMargin, top + height / 2 + 4, row.name, "soft");
      svg.text(kPlotLeft - 10, top + height / 2 + 4, format_percent(row.busy, 1), "soft",
               Anchor::end);
      top += height + 1;
    }
    top += kRowGap - 1;
  }
}

void draw_time_axis(Svg& svg, const Window& window, double top, double bottom) {
  for (const Tick& tick : time_ticks(window.from, window.to, 0, 10)) {
    const double x = window.x(tick.at);
    svg.line(x, top, x, bottom + 4, "#9AA5B1", "stroke-width=\"1\" stroke-opacity=\"0.35\"");
    svg.text(x, bottom + 18, tick.label, "axis", Anchor::middle);
  }
  svg.line(kPlotLeft, bottom, window.frame.plot_right(), bottom, "#9AA5B1", "stroke-width=\"1\"");
}

}  // namespace fpdt
