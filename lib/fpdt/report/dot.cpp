// Numbers the ops of the calls, folds what does not fit, gives each box a column, and writes.
#include "fpdt/report/dot.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fpdt/report/json_text.h"
#include "fpdt/report/live.h"
#include "fpdt/report/look.h"
#include "fpdt/report/palette.h"
#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

// Lengths are in points.
constexpr std::size_t kMostInRow = 16, kTitleColumns = 6;  // 4 rows of 4 lanes fill a slide
constexpr double kPitch = 92, kBoxWidth = 78, kBoxHeight = 36, kLaneHeight = 52, kLaneGap = 4;
constexpr double kRowGap = 22, kLeft = 76, kTitle = 44;

constexpr std::string_view kGraphStyle =
    "layout=nop2; outputorder=edgesfirst; bgcolor=white; pad=0.25;\n"
    "graph [fontname=\"Helvetica,Arial\", fontsize=11, fontcolor=\"#1F2933\"];\n"
    "node [shape=box, style=\"rounded,filled\", penwidth=0, fontname=\"Helvetica,Arial\","
    " fontsize=8.5, fixedsize=shape, margin=0];\n"
    "edge [color=\"#3E4C59\", arrowsize=0.5, penwidth=0.9];\n";

// An op, or the folded ops of a lane.
struct GraphBox {
  std::int32_t lane = 0;
  std::vector<std::size_t> ops;
  bool is_fold = false;
  std::size_t column = 0;
};

struct BoxLayout {
  std::vector<GraphBox> boxes;
  std::vector<std::size_t> box_of;  // of each op
  std::size_t columns = 0;
};

class Graph {
 public:
  Graph(const Program& program, const std::vector<Call>& calls, const GraphView& view)
      : program_(program), calls_(calls), view_(view), kinds_(op_kinds(*program.schedule)) {
    number_ops();
    find_edges();
  }

  DependencyGraph write() {
    DependencyGraph graph{{}, ops_.size(), fold()};
    layout_ = lay_out(graph.folded);
    find_lanes();
    write_title(graph.folded);
    write_lanes();
    for (std::size_t box = 0; box < layout_.boxes.size(); ++box) write_box(box);
    write_lane_order();
    write_edges();
    graph.dot = fmt::format("digraph schedule {{\n{}{}}}\n", kGraphStyle, dot_);
    return graph;
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(dot_), format, std::forward<Arguments>(arguments)...);
    dot_ += '\n';
  }

  [[nodiscard]] const Block& block(std::int32_t call) const {
    return program_.schedule->blocks[index(calls_[index(call)].block)];
  }
  [[nodiscard]] std::int32_t lane(std::size_t op) const {
    const OpPlace& place = ops_[op];
    return program_.blocks[index(calls_[index(place.call)].block)].ops[index(place.op)].lane;
  }
  [[nodiscard]] const Op& op(std::size_t number) const {
    return block(ops_[number].call).ops[index(ops_[number].op)];
  }

  void number_ops() {
    for (const std::int32_t call : view_.calls) {
      first_.push_back(ops_.size());
      for (std::size_t i = 0; i < block(call).ops.size(); ++i) {
        ops_.push_back({call, static_cast<std::int32_t>(i)});
      }
    }
    view_.last = std::min(view_.last, ops_.size());
  }

  void find_edges() {
    std::vector<std::vector<std::int32_t>> calls_of(program_.blocks.size());
    std::int32_t next = 0;
    for (std::size_t i = 0; i < view_.calls.size(); ++i) {
      for (; next <= view_.calls[i]; ++next)
        calls_of[index(calls_[index(next)].block)].push_back(next);
      const std::int32_t own = calls_[index(view_.calls[i])].block;
      const std::vector<Op>& ops = block(view_.calls[i]).ops;
      for (std::size_t o = 0; o < ops.size(); ++o) {
        for (const After& after : ops[o].after) {
          const std::vector<std::int32_t>& earlier = calls_of[index(after.block)];
          const std::int64_t which =
              awaited_call(after, std::ssize(earlier) - (after.block == own ? 1 : 0),
                           calls_[index(view_.calls[i])].layer,
                           [&](std::int64_t n) { return calls_[index(earlier[index(n)])].layer; });
          if (which < 0) continue;
          const auto shown =
              std::find(view_.calls.begin(), view_.calls.end(), earlier[index(which)]);
          if (shown == view_.calls.end()) continue;
          edges_.emplace_back(first_[index(shown - view_.calls.begin())] + index(after.op),
                              first_[i] + o);
        }
      }
    }
  }

  // The ranges to fold: all ops outside the window, and as few in its middle as make it fit.
  [[nodiscard]] std::vector<OpRange> fold() const {
    const auto folded = [&](std::size_t kept) {
      const OpRange before{0, view_.first};
      OpRange middle{view_.first + kept, view_.last - std::min(kept, view_.last)};
      if (middle.first >= middle.last) middle = {view_.last, view_.last};
      std::vector<OpRange> ranges{before, middle, {view_.last, ops_.size()}};
      std::erase_if(ranges, [](const OpRange& range) { return range.first == range.last; });
      return ranges;
    };
    const std::size_t all = view_.last - view_.first;
    // One more row is better than a fold of a few ops.
    if (lay_out(folded(all)).columns <= kGraphColumns + kMostInRow) return folded(all);
    std::size_t fits = 0, fails = all / 2 + 1;  // ops of either end
    while (fails - fits > 1) {
      const std::size_t half = fits + (fails - fits) / 2;
      (lay_out(folded(half)).columns <= kGraphColumns ? fits : fails) = half;
    }
    return folded(fits);
  }

  // A fold has a column of its own: nothing before it stands beside what comes after it.
  [[nodiscard]] BoxLayout lay_out(const std::vector<OpRange>& folded) const {
    BoxLayout layout;
    layout.box_of.resize(ops_.size());
    std::vector<std::size_t> free(program_.lanes.size(), 0);
    std::vector<std::int64_t> fold_of(program_.lanes.size(), -1);
    auto fold = folded.begin();
    auto edge = edges_.begin();  // in order of the ops that wait
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const auto on = index(lane(i));
      if (fold != folded.end() && i == fold->last) ++fold;
      const bool is_fold = fold != folded.end() && i >= fold->first;
      if (is_fold && i == fold->first) {
        std::fill(free.begin(), free.end(), layout.columns);
        std::fill(fold_of.begin(), fold_of.end(), -1);
        ++layout.columns;
      }
      std::size_t column = free[on];
      for (; edge != edges_.end() && edge->second == i; ++edge) {
        column = std::max(column, layout.boxes[layout.box_of[edge->first]].column + 1);
      }
      if (is_fold && fold_of[on] >= 0) {
        layout.box_of[i] = index(fold_of[on]);
        layout.boxes[layout.box_of[i]].ops.push_back(i);
        continue;
      }
      if (is_fold) {
        column = layout.columns - 1;
        fold_of[on] = std::ssize(layout.boxes);
      }
      layout.box_of[i] = layout.boxes.size();
      layout.boxes.push_back({static_cast<std::int32_t>(on), {i}, is_fold, column});
      layout.columns = std::max(layout.columns, column + 1);
      free[on] = column + 1;
      if (is_fold) std::fill(free.begin(), free.end(), column + 1);
    }
    return layout;
  }

  void find_lanes() {
    row_of_.assign(program_.lanes.size(), -1);
    for (const GraphBox& box : layout_.boxes) row_of_[index(box.lane)] = 0;
    for (std::int32_t& row : row_of_) {
      if (row == 0) row = lanes_++;
    }
    rows_ = std::max<std::size_t>(1, (layout_.columns + kMostInRow - 1) / kMostInRow);
    in_row_ = (layout_.columns + rows_ - 1) / rows_;
    width_ = kLeft + kPitch * static_cast<double>(std::max(in_row_, kTitleColumns));
    row_height_ = kLaneHeight * lanes_ + kRowGap;
    height_ = kTitle + row_height_ * static_cast<double>(rows_);
  }

  // The middle of a lane in a row; y grows upwards.
  [[nodiscard]] double middle(std::size_t row, std::int32_t lane) const {
    return height_ - kTitle - row_height_ * static_cast<double>(row) -
           kLaneHeight * (row_of_[index(lane)] + 0.5);
  }
  [[nodiscard]] double x(const GraphBox& box) const {
    return kLeft + kPitch * (static_cast<double>(box.column % in_row_) + 0.5);
  }
  [[nodiscard]] double y(const GraphBox& box) const {
    return middle(box.column / in_row_, box.lane);
  }

  void write_title(const std::vector<OpRange>& folded) {
    std::vector<std::string> names;
    for (const std::int32_t call : view_.calls) {
      const Call& one = calls_[index(call)];
      const bool by_layer = std::any_of(calls_.begin(), calls_.end(), [&](const Call& other) {
        return other.block == one.block && other.layer != 0;
      });
      names.push_back(by_layer ? fmt::format("{} of layer {}", block(call).name, one.layer)
                               : block(call).name);
    }
    std::string text = fmt::format("{}: {} {}", fmt::join(names, ", "), ops_.size(),
                                   ops_.size() == 1 ? "op" : "ops");
    for (std::size_t i = 0; i < folded.size(); ++i) {
      text += fmt::format("{}{} to {}", i == 0 ? "; folded: " : ", ", folded[i].first + 1,
                          folded[i].last);
    }
    line("bb=\"0,0,{:g},{:g}\";", width_, height_);
    line(
        "title [label=\"{}\\l\", pos=\"{:g},{:g}\", width={:.3f}, height=0.3, fontsize=14,"
        " fillcolor=white, fontcolor=\"{}\"];",
        text, width_ / 2, height_ - 10, width_ / 72, kInk);
    line(
        "legend [label=\"{}\\l\", pos=\"{:g},{:g}\", width={:.3f}, height=0.2, fontsize=9.5,"
        " fillcolor=white, fontcolor=\"{}\"];",
        "solid: waits for an op on another lane; dashed: next op on its lane; columns do not show "
        "time; long rows continue below",
        width_ / 2, height_ - 30, width_ / 72, kSoftInk);
  }

  void write_lanes() {
    for (std::size_t row = 0; row < rows_; ++row) {
      for (std::size_t lane = 0; lane < row_of_.size(); ++lane) {
        if (row_of_[lane] < 0) continue;
        const double at = middle(row, static_cast<std::int32_t>(lane));
        const double half = (kLaneHeight - kLaneGap) / 2;
        line(
            "subgraph cluster_{}_{} {{ bb=\"0,{:g},{:g},{:g}\"; style=filled; color=\"{}\"; "
            "label={}; lp=\"{:g},{:g}\"; anchor_{}_{} [label=\"\", style=invis, width=0.01, "
            "height=0.01, "
            "pos=\"4,{:g}\"]; }}",
            row, lane, at - half, width_, at + half, kPaper,
            quote_json(lane_text(program_.lanes[lane])), kLeft / 2, at, row, lane, at);
      }
    }
  }

  // The words of a name on up to two lines, then its numbers.
  static std::string label(const std::string& name) {
    constexpr std::size_t kLetters = 15;
    const std::size_t dot = name.find('.');
    std::string word = name.substr(0, dot);
    std::size_t cut = std::string::npos;  // after the underscore nearest to the middle
    const auto off_middle = [&](std::size_t i) {
      return std::abs(std::ssize(word) - 2 * static_cast<std::ptrdiff_t>(i));
    };
    for (std::size_t i = 0; word.size() > kLetters && i < word.size(); ++i) {
      if (word[i] == '_' && (cut == std::string::npos || off_middle(i) < off_middle(cut))) cut = i;
    }
    if (cut != std::string::npos) word.insert(cut + 1, "\\n");
    if (dot == std::string::npos) return '"' + word + '"';
    // "0, 8192" of "up.0.8192" are two numbers, not one with decimals.
    std::string rest = name.substr(dot + 1);
    const auto is_digit = [&](std::size_t i) { return rest[i] >= '0' && rest[i] <= '9'; };
    for (std::size_t i = 1; i + 1 < rest.size(); ++i) {
      if (rest[i] == '.' && is_digit(i - 1) && is_digit(i + 1)) rest.replace(i, 1, ", ");
    }
    return '"' + word + "\\n" + rest + '"';
  }

  void write_box(std::size_t number) {
    const GraphBox& box = layout_.boxes[number];
    const std::string at = fmt::format("pos=\"{:g},{:g}\", width={:.3f}, height={:.3f}", x(box),
                                       y(box), kBoxWidth / 72, kBoxHeight / 72);
    if (box.is_fold) {
      line(
          "b{} [label=\"{} {}\\nfolded\", {}, style=\"rounded,filled,dashed\", fillcolor=white, "
          "penwidth=1, "
          "color=\"{}\", fontcolor=\"{}\", tooltip=\"ops {} to {}\"];",
          number, box.ops.size(), box.ops.size() == 1 ? "op" : "ops", at, kSoftInk, kSoftInk,
          box.ops.front() + 1, box.ops.back() + 1);
      return;
    }
    const Op& one = op(box.ops[0]);
    const OpPlace& place = ops_[box.ops[0]];
    const OpKind kind = kinds_[index(calls_[index(place.call)].block)][index(place.op)];
    line("b{} [label={}, {}, fillcolor=\"{}\", fontcolor=\"{}\", tooltip={}];", number,
         label(one.name), at, color(kind), is_dark(kind) ? "#FFFFFF" : kInk,
         quote_json(tooltip(box.ops[0])));
  }

  [[nodiscard]] std::string tooltip(std::size_t number) const {
    const Op& one = op(number);
    const std::int32_t call = ops_[number].call;
    std::string text =
        fmt::format("op {}, {}, {}, layer {}: {}", number + 1, one.name, block(call).name,
                    calls_[index(call)].layer, body_name(one.body));
    for (const Use& use : operands(one.body)) {
      const std::string& buffer = program_.schedule->buffers[index(use.operand.buffer)].name;
      text += fmt::format(", {} {}", use.field,
                          operand_text(buffer, use.operand, use.access == Access::accumulate));
    }
    return text;
  }

  void write_lane_order() {
    std::vector<std::int64_t> last(program_.lanes.size(), -1);
    for (std::size_t i = 0; i < layout_.boxes.size(); ++i) {
      const GraphBox& box = layout_.boxes[i];
      const std::int64_t before =
          std::exchange(last[index(box.lane)], static_cast<std::int64_t>(i));
      if (before < 0) continue;
      const GraphBox& from = layout_.boxes[index(before)];
      if (from.column / in_row_ != box.column / in_row_) continue;
      const double begin = x(from) + kBoxWidth / 2, end = x(box) - kBoxWidth / 2, at = y(box);
      line(
          "b{} -> b{} [style=dashed, color=\"#9AA5B1\", pos=\"e,{:g},{:g} {:g},{:g} {:g},{:g} "
          "{:g},{:g} {:g},{:g}\"];",
          before, i, end, at, begin, at, begin + (end - begin) / 3, at,
          begin + 2 * (end - begin) / 3, at, end - 5, at);
    }
  }

  // An edge leaves its box on the side that faces the other box, right of the middle, and arrives
  // left of the other box's middle. Boxes of one lane have an edge only where they are of different
  // calls.
  void write_edges() {
    std::set<std::pair<std::size_t, std::size_t>> written;
    for (const auto& [from, to] : edges_) {
      const std::size_t a = layout_.box_of[from], b = layout_.box_of[to];
      const GraphBox &source = layout_.boxes[a], &target = layout_.boxes[b];
      if (source.lane == target.lane || (source.is_fold && target.is_fold)) continue;
      if (!written.emplace(a, b).second) continue;
      const double up = y(target) > y(source) ? 1 : -1;
      const double x1 = x(source) + kBoxWidth / 4, y1 = y(source) + up * kBoxHeight / 2;
      const double x2 = x(target) - kBoxWidth / 4, y2 = y(target) - up * kBoxHeight / 2;
      const double bend = std::max(10.0, up * (y2 - y1) / 2);
      const bool wraps = source.column / in_row_ != target.column / in_row_;
      line("b{} -> b{} [pos=\"e,{:g},{:g} {:g},{:g} {:g},{:g} {:g},{:g} {:g},{:g}\"{}];", a, b, x2,
           y2, x1, y1, x1, y1 + up * bend, x2, y2 - up * bend, x2, y2 - up * 5,
           wraps ? ", color=\"#B8A0A0\"" : "");
    }
  }

  const Program& program_;
  const std::vector<Call>& calls_;
  GraphView view_;
  const std::vector<std::vector<OpKind>> kinds_;  // of each op of each block
  std::vector<OpPlace> ops_;
  std::vector<std::size_t> first_;  // op of each call
  std::vector<std::pair<std::size_t, std::size_t>> edges_;
  BoxLayout layout_;
  std::vector<std::int32_t> row_of_;  // of each lane; -1: not shown
  std::int32_t lanes_ = 0;
  std::size_t rows_ = 0, in_row_ = 0;  // columns in one
  double width_ = 0, height_ = 0, row_height_ = 0;
  std::string dot_;
};

}  // namespace

DependencyGraph dependency_graph(const Program& program, const std::vector<Call>& calls,
                                 const GraphView& view) {
  return Graph(program, calls, view).write();
}

}  // namespace fpdt
