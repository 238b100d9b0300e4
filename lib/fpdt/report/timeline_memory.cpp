// Memory over time: stacked by category, budget and arena as lines, a flag at the peak, and
// beside it a table of the values live there.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/timeline_panels.h"

namespace fpdt {
namespace {

constexpr double kFlagRoom = 40;  // above the peak

// Maps bytes to pixels.
struct Scale {
  double base = 0;  // y of zero
  double top = 0;
  std::int64_t most = 1;
  Frame frame{};
  [[nodiscard]] double pixels() const { return (base - top) / static_cast<double>(most); }
  [[nodiscard]] double y(std::int64_t bytes) const {
    return base - pixels() * static_cast<double>(bytes);
  }
};

void draw_grid(Svg& svg, const Scale& scale) {
  svg.rectangle(kPlotLeft, scale.top, scale.frame.plot_right() - kPlotLeft, scale.base - scale.top,
                kPaper);
  for (const Tick& tick : byte_ticks(Bytes{scale.most}, scale.base - scale.top > 180 ? 6 : 4)) {
    const double y = scale.y(tick.at);
    svg.line(kPlotLeft, y, scale.frame.plot_right(), y, kRule, "stroke-width=\"1\"");
    svg.text(kPlotLeft - 10, y + 4, tick.label, "axis", Anchor::end);
  }
}

// Draws the areas of the parts, bottom first, and below the other activations those with a tint.
// `without` is subtracted from each step.
void draw_stack(Svg& svg, const std::vector<LiveStep>& steps, const PartBytes& without,
                const Window& window, const Scale& scale) {
  std::vector<double> edges;
  for (const LiveStep& step : steps) edges.push_back(window.x(step.begin));
  if (steps.empty()) return;
  edges.push_back(window.x(steps.back().end));
  std::vector<std::string_view> colors;
  std::vector<std::vector<double>> values;
  const auto add = [&](std::string_view fill, auto bytes) {
    colors.push_back(fill);
    values.emplace_back();
    for (const LiveStep& step : steps) values.back().push_back(static_cast<double>(bytes(step)));
  };
  for (const Part part : kStackOrder) {
    const std::size_t i = index(static_cast<int>(part));
    const bool tinted = part == Part::activations;
    for (std::size_t tint = 0; tinted && tint < kTints; ++tint) {
      add(tint_color(tint), [&](const LiveStep& step) { return step.tints[tint]; });
    }
    add(color(part), [&](const LiveStep& step) {
      return step.bytes[i] - without[i] - (tinted ? total(step.tints) : 0);
    });
  }
  const auto paths = stack_paths(edges, values, scale.base, scale.pixels());
  for (std::size_t k = 0; k < paths.size(); ++k) svg.path(paths[k], colors[k]);
}

void draw_line(Svg& svg, const std::vector<LiveStep>& steps, std::int64_t without,
               const Window& window, const Scale& scale) {
  std::string points;
  for (const LiveStep& step : steps) {
    const std::string y = coordinate(scale.y(total(step.bytes) - without));
    points += points.empty() ? fmt::format("M{} {}", coordinate(window.x(step.begin)), y)
                             : fmt::format("V{}", y);
    points += fmt::format("H{}", coordinate(window.x(step.end)));
  }
  svg.path(points, "none", "stroke=\"#FFFFFF\" stroke-width=\"3.2\" stroke-opacity=\"0.8\"");
  svg.path(points, "none", "stroke=\"#111111\" stroke-width=\"1.4\"");
}

// A box of text on the plot.
struct Label {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  [[nodiscard]] bool meets(const Label& other) const {
    return left < other.left + other.width && other.left < left + width &&
           top < other.top + other.height && other.top < top + height;
  }
};

// A level across the plot, such as the budget.
struct Level {
  std::string_view name;
  Bytes bytes;
  bool alarm = false;
};

// The first place beside a level where nothing is drawn; else the first without a label.
Label place_label(const Frame& frame, double y, double width, const std::vector<Label>& labels,
                  const std::vector<Label>& drawn) {
  const double right = frame.plot_right() - 4 - width;
  const std::array<Label, 4> places{{{right, y - 16, width, 14},
                                     {right, y + 2, width, 14},
                                     {kPlotLeft + 4, y - 16, width, 14},
                                     {kPlotLeft + 4, y + 2, width, 14}}};
  const auto free = [](const Label& place, const std::vector<Label>& taken) {
    return std::none_of(taken.begin(), taken.end(),
                        [&](const Label& other) { return place.meets(other); });
  };
  for (const Label& place : places) {
    if (free(place, labels) && free(place, drawn)) return place;
  }
  const auto found = std::find_if(places.begin(), places.end(),
                                  [&](const Label& place) { return free(place, labels); });
  return found == places.end() ? places.front() : *found;
}

// Draws levels with their names at one end, where neither the flag nor what is `drawn` is in the
// way, or as an arrow when they are above the plot.
void draw_levels(Svg& svg, const Scale& scale, const std::vector<Level>& levels, const Label& flag,
                 std::vector<Label> drawn) {
  const double wide = scale.frame.plot_right() - kPlotLeft;
  for (const Level& level : levels) {
    drawn.push_back({kPlotLeft, scale.y(level.bytes.value) - 1, wide, 2});
  }
  std::vector<Label> labels{flag};
  for (const Level& level : levels) {
    if (level.bytes.value <= 0) continue;
    const std::string text = fmt::format("{} {}", level.name, format_bytes(level.bytes));
    const std::string_view ink = level.alarm ? kAlarm : kSoftInk;
    const std::string fill = fmt::format("style=\"fill:{}\"", ink);
    if (level.bytes.value > scale.most) {
      svg.text(scale.frame.plot_right() - 6, scale.top - 8, "▲ " + text, "level", Anchor::end,
               fill);
      continue;
    }
    const double y = scale.y(level.bytes.value);
    svg.line(kPlotLeft, y, scale.frame.plot_right(), y, ink,
             level.alarm ? "stroke-width=\"1.6\" stroke-dasharray=\"7 4\""
                         : "stroke-width=\"1\" stroke-dasharray=\"2 3\"");
    const double width = text_width(text, 11.5, Weight::bold) + 10;
    labels.push_back(place_label(scale.frame, y, width, labels, drawn));
    const Label& label = labels.back();
    svg.rectangle(label.left, label.top, label.width, label.height, kPaper,
                  "fill-opacity=\"0.85\"");
    svg.text(label.left + 5, label.top + 11, text, "level", Anchor::start, fill);
  }
}

// The bars of a stack.
std::vector<Label> bars_of(const std::vector<LiveStep>& steps, const Window& window,
                           const Scale& scale) {
  std::vector<Label> bars;
  for (const LiveStep& step : steps) {
    const double left = window.x(step.begin), top = scale.y(total(step.bytes));
    bars.push_back({left, top, window.x(step.end) - left, scale.base - top});
  }
  return bars;
}

// Where the flag of a peak stands, above the mark at `x` and `y`.
Label flag_at(const Frame& frame, double x, double y, const std::string& text) {
  const double width = text_width(text, 12, Weight::bold) + 18;
  return {x + width > frame.plot_right() ? x - width : x, y - kFlagRoom + 6, width, 20};
}

void draw_flag(Svg& svg, const Scale& scale, const Label& flag, double x, double y,
               const std::string& text) {
  svg.line(x, scale.base, x, flag.top, kInk, "stroke-width=\"1\"");
  svg.rectangle(flag.left, flag.top, flag.width, flag.height, kInk);
  svg.text(flag.left + 9, flag.top + 14, text, "flag");
  svg.path(fmt::format("M{} {}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0", coordinate(x),
                       coordinate(y)),
           kInk, "stroke=\"#FFFFFF\" stroke-width=\"1.2\"");
}

std::string_view color_of(const Live& live, BufferIndex buffer) {
  const int tint = live.tint[index(buffer)];
  return tint >= 0 ? tint_color(index(tint))
                   : color(part_of(live.schedule->buffers[index(buffer)]));
}

// Activations have all their shades in one square.
void draw_shades(Svg& svg, double left, double top, std::size_t tints) {
  const double width = 11.0 / static_cast<double>(tints + 1);
  for (std::size_t tint = 0; tint < tints; ++tint) {
    svg.rectangle(left + width * static_cast<double>(tint), top, width, 11, tint_color(tint));
  }
}

void draw_row(Svg& svg, const Frame& frame, double y, std::string_view fill,
              const std::string& name, Bytes bytes, std::string_view style) {
  if (!fill.empty()) svg.rectangle(frame.column_left(), y - 9, 11, 11, fill, "rx=\"2\"");
  const double width =
      frame.column_right() - frame.column_left() - 18 - 8 - text_width(format_bytes(bytes), 12);
  svg.text(frame.column_left() + 18, y, fit_text(name, 12, width), style);
  svg.text(frame.column_right(), y, format_bytes(bytes), style, Anchor::end);
}

// Which categories are visible anywhere in the plot.
std::array<bool, kParts> seen(const std::vector<LiveStep>& steps, const LivePeak& peak) {
  std::array<bool, kParts> any{};
  for (const LiveStep& step : steps) {
    for (std::size_t i = 0; i < kParts; ++i) {
      any[i] = any[i] || step.bytes[i] * 1000 > peak.bytes.value;
    }
  }
  return any;
}

// Draws a table of the live bytes at the peak: categories, top of the stack first, then the
// heaviest rings.
void draw_table(Svg& svg, const Frame& frame, const TimelineData& data, const LivePeak& peak,
                const std::array<bool, kParts>& categories, double top, double bottom) {
  constexpr double kRow = 17;
  const Schedule& schedule = *data.live.schedule;
  double y = top + 4;
  svg.text(frame.column_left(), y, "live at the peak", "heading2");
  svg.text(frame.column_right(), y, format_bytes(peak.bytes), "heading2", Anchor::end);
  y += kRow + 2;
  for (auto it = kStackOrder.rbegin(); it != kStackOrder.rend(); ++it) {
    const std::int64_t bytes = peak.parts[index(static_cast<int>(*it))];
    if (!categories[index(static_cast<int>(*it))]) continue;
    draw_row(svg, frame, y, color(*it), std::string(word(*it)), Bytes{bytes}, "row");
    if (*it == Part::activations) {
      draw_shades(svg, frame.column_left(), y - 9, data.live.tinted.size());
    }
    y += kRow;
  }
  bool first = true;
  for (const LiveBuffer& one : peak.buffers) {
    if (one.lives.empty()) continue;
    if (y + (first ? kRow : 0) > bottom) return;
    if (first) {
      svg.line(frame.column_left(), y - 9, frame.column_right(), y - 9, kRule,
               "stroke-width=\"1\"");
      svg.text(frame.column_left(), y + 5, "heaviest values", "soft");
      y += kRow + 4;
      first = false;
    }
    const Buffer& buffer = schedule.buffers[index(one.buffer)];
    std::string name = buffer.name;
    if (one.lives.size() > 1) name += fmt::format(" × {}", one.lives.size());
    svg.begin_group(origin(data.live, *data.picture->run.calls, one));
    draw_row(svg, frame, y, color_of(data.live, one.buffer), name, one.bytes, "row");
    svg.end_group();
    y += kRow - 1;
  }
}

}  // namespace

std::vector<std::string> stack_paths(const std::vector<double>& edges,
                                     const std::vector<std::vector<double>>& values, double base,
                                     double scale) {
  std::vector<std::string> paths;
  const std::size_t steps = edges.size() - 1;
  std::vector<double> below(steps, 0);
  for (const std::vector<double>& layer : values) {
    std::string there;
    std::vector<std::pair<std::size_t, double>> back;  // corners of the lower edge
    std::string last;
    for (std::size_t i = 0; i < steps; ++i) {
      const std::string y = coordinate(base - scale * (below[i] + layer[i]));
      const double lower = base - scale * below[i];
      if (back.empty() || coordinate(back.back().second) != coordinate(lower)) {
        back.emplace_back(i, lower);
      }
      if (i == 0) {
        there = fmt::format("M{} {}", coordinate(edges[0]), y);
      } else if (y != last) {
        there += fmt::format("H{}V{}", coordinate(edges[i]), y);
      }
      last = y;
    }
    const bool flat =
        std::all_of(layer.begin(), layer.end(), [](double value) { return value == 0; });
    there += fmt::format("H{}", coordinate(edges[steps]));
    for (auto it = back.rbegin(); it != back.rend(); ++it) {
      there += fmt::format("V{}H{}", coordinate(it->second), coordinate(edges[it->first]));
    }
    paths.push_back(flat ? "" : there + "Z");
    for (std::size_t i = 0; i < steps; ++i) below[i] += layer[i];
  }
  return paths;
}

void draw_memory(Svg& svg, const TimelineData& data, const Window& window,
                 const MemoryPanel& panel) {
  const MemorySpace space = panel.space;
  const Schedule& schedule = *data.live.schedule;
  const BudgetLine budget = budget_line(*data.picture, space);
  const Bytes arena = arena_end(schedule, space);
  const auto columns = static_cast<std::size_t>(window.frame.plot_right() - kPlotLeft);
  const auto steps = live_steps(data.live, space, window.from, window.to, columns);
  const LivePeak peak = find_peak(data.live, space, window.from, window.to);
  PartBytes without{};
  if (panel.detail) without = data.live.always[index(static_cast<int>(space))];
  const std::int64_t stays = total(without);

  std::int64_t most = peak.bytes.value - stays;
  std::vector<LiveStep> line;
  const Live* measured = data.measured(space);
  if (measured != nullptr) {
    const Window its = window.measured();
    line = live_steps(*measured, space, its.from, its.to, columns);
    for (const LiveStep& step : line) most = std::max(most, total(step.bytes) - stays);
  }
  if (!panel.detail) {
    most = std::max(most, arena.value);
    if (budget.bytes.value < 5 * most / 2) most = std::max(most, budget.bytes.value);
  }
  const double with_flag =
      static_cast<double>(peak.bytes.value - stays) * panel.height / (panel.height - kFlagRoom);
  most = std::max<std::int64_t>({most + most / 8, static_cast<std::int64_t>(with_flag), 1});
  const Scale scale{panel.top + panel.height, panel.top, most, window.frame};

  std::string heading(title_of(space));
  if (panel.detail) heading += fmt::format(", excluding {} that stay", format_bytes(Bytes{stays}));
  svg.text(kPlotLeft, panel.top - 8, heading, "heading");
  draw_grid(svg, scale);
  draw_stack(svg, steps, without, window, scale);
  if (measured != nullptr) draw_line(svg, line, stays, window.measured(), scale);
  const std::string text =
      fmt::format("peak {} at {}", format_bytes(Bytes{peak.bytes.value - stays}),
                  format_nanoseconds(peak.time));
  const double x = window.x(peak.time);
  const double y = scale.y(peak.bytes.value - stays);
  const Label flag = flag_at(window.frame, x, y, text);
  if (!panel.detail) {
    draw_levels(svg, scale, {{budget.name, budget.bytes, true}, {"arena", arena, false}}, flag,
                bars_of(steps, window, scale));
    draw_table(svg, window.frame, data, peak, seen(steps, peak), panel.top + 4, scale.base + 4);
  }
  draw_flag(svg, scale, flag, x, y, text);
}

}  // namespace fpdt
