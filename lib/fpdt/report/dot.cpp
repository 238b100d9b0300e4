// Writes nodes lane by lane, then edges.
#include "fpdt/report/dot.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "fpdt/report/json_text.h"
#include "fpdt/report/palette.h"
#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

// Time runs to the right, as in the timeline. Graphs longer than this run downwards.
constexpr std::size_t kWide = 40;

constexpr std::string_view kGraphStyle =
    " newrank=true; ranksep=0.32; nodesep=0.14; splines=spline;\n"
    "graph [fontname=\"Helvetica,Arial\", fontsize=13, fontcolor=\"#1F2933\", color=\"#D9DEE4\","
    " style=\"rounded,filled\", fillcolor=\"#F7F9FB\", labeljust=l, pad=0.2];\n"
    "node [shape=box, style=\"rounded,filled\", penwidth=0, fontname=\"Helvetica,Arial\","
    " fontsize=11, height=0.3, margin=\"0.09,0.04\"];\n"
    "edge [color=\"#3E4C59\", arrowsize=0.55, penwidth=1];\n";

class Graph {
 public:
  Graph(const Program& program, const std::vector<Call>& calls, const CallRange& range)
      : program_(program), calls_(calls), range_(range), nodes_(program.lanes.size()) {}

  std::string write() {
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane) write_lane(lane);
    write_edges();
    const bool tall = std::any_of(nodes_.begin(), nodes_.end(),
                                  [](const auto& lane) { return lane.size() > kWide; });
    return fmt::format("digraph schedule {{\nrankdir={};{}{}}}\n", tall ? "TB" : "LR", kGraphStyle,
                       dot_);
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
  [[nodiscard]] const PlainBlock& plain(std::int32_t call) const {
    return program_.blocks[index(calls_[index(call)].block)];
  }

  static std::string node(const OpPlace& place) {
    return fmt::format("c{}_{}", place.call, place.op);
  }

  void write_lane(std::size_t lane) {
    line("subgraph cluster_{} {{ label={}; margin=10;", lane,
         quote_json(lane_text(program_.lanes[lane])));
    const bool many = range_.last - range_.first > 1;
    for (std::int32_t call = range_.first; call < range_.last; ++call) {
      const Block& ops = block(call);
      for (std::int32_t i = 0; i < static_cast<std::int32_t>(ops.ops.size()); ++i) {
        if (plain(call).ops[index(i)].lane != static_cast<std::int32_t>(lane)) continue;
        const Op& op = ops.ops[index(i)];
        const OpKind kind = kind_of(*program_.schedule, op);
        const std::string where = fmt::format("{}, layer {}", ops.name, calls_[index(call)].layer);
        std::string name = quote_json(op.name);
        // Ops of several calls get a second label line, the call.
        if (many) name.insert(name.size() - 1, "\\n" + where);
        line("{} [label={}, fillcolor=\"{}\", fontcolor=\"{}\", tooltip={}];", node({call, i}),
             name, color(kind), is_dark(kind) ? "#FFFFFF" : "#1F2933",
             quote_json(tooltip(op, where)));
        nodes_[lane].push_back({call, i});
      }
    }
    line("}}");
    for (std::size_t i = 1; i < nodes_[lane].size(); ++i) {
      line("{} -> {} [style=dashed, color=\"#9AA5B1\", weight=20, arrowsize=0.4];",
           node(nodes_[lane][i - 1]), node(nodes_[lane][i]));
    }
  }

  [[nodiscard]] std::string tooltip(const Op& op, const std::string& where) const {
    std::string text = fmt::format("{}: {}", where, body_name(op.body));
    for (const Use& use : operands(op.body)) {
      const std::string& buffer = program_.schedule->buffers[index(use.operand.buffer)].name;
      text += fmt::format(", {} {}", use.field,
                          operand_text(buffer, use.operand, use.access == Access::accumulate));
    }
    return text;
  }

  // Writes the edges across lanes. `after` counts calls back among those of its block.
  void write_edges() {
    std::vector<std::vector<std::int32_t>> calls_of(program_.blocks.size());
    for (std::int32_t call = 0; call < range_.last; ++call) {
      const std::int32_t own = calls_[index(call)].block;
      calls_of[index(own)].push_back(call);
      if (call < range_.first) continue;
      const std::vector<Op>& ops = block(call).ops;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        for (const After& after : ops[i].after) {
          const std::vector<std::int32_t>& earlier = calls_of[index(after.block)];
          const std::int64_t which = std::ssize(earlier) - after.calls_back - (after.block == own);
          if (which < 0 || earlier[index(which)] < range_.first) continue;
          line("{} -> {};", node({earlier[index(which)], after.op}),
               node({call, static_cast<std::int32_t>(i)}));
        }
      }
    }
  }

  const Program& program_;
  const std::vector<Call>& calls_;
  CallRange range_;
  std::vector<std::vector<OpPlace>> nodes_;  // nodes of each lane, in order
  std::string dot_;
};

}  // namespace

std::string dependency_dot(const Program& program, const std::vector<Call>& calls,
                           const CallRange& range) {
  return Graph(program, calls, range).write();
}

}  // namespace fpdt
