// Requirements of calls, the walk that adds edges, and the walk that only checks them.
#include "fpdt/schedule/edge_walk.h"

#include <algorithm>

#include "fpdt/schedule/call_clocks.h"
#include "fpdt/schedule/text.h"

namespace fpdt {
namespace {

using Position = Hazards::Position;

// One walk over a call list.
class Walk {
 public:
  Walk(CallList& list, StaticEdges& edges)
      : list_(list),
        program_(list.program),
        edges_(edges),
        lanes_(program_.lanes.size()),
        lane_clock_(lanes_ * lanes_, -1),
        calls_of_(program_.blocks.size()) {}

  // Returns whether an edge was added.
  bool run() {
    std::size_t gap = 0;
    for (call_ = 0; call_ < list_.calls.size(); ++call_) {
      const CallList::CallSpan& call = list_.calls[call_];
      calls_of_[index(call.block)].push_back(call_);
      if (!call.kept) continue;
      if (gap < call_) leave_out(gap, call_);
      gap = call_ + 1;
      walk(call);
    }
    return added_;
  }

 private:
  void walk(const CallList::CallSpan& call) {
    const PlainBlock& block = program_.blocks[index(call.block)];
    const Position* const begin = &list_.lane_begin[call_ * lanes_];
    const auto* requirement = list_.requirements.data() + call.first_requirement;
    const auto* const end = list_.requirements.data() + last_requirement();
    Position* clock = &list_.clocks[call.first_clock];
    for (std::size_t i = 0; i < block.ops.size(); ++i, clock += lanes_) {
      const PlainOp& op = block.ops[i];
      std::vector<StaticEdge>& edges = edges_[index(call.block)][i];
      Position* const own = &lane_clock_[index(op.lane) * lanes_];
      const auto* first = requirement;
      while (requirement != end && index(requirement->op) == i) ++requirement;
      mark_needed(first, requirement, edges, own);
      for (const StaticEdge& edge : edges) join(own, clock_of(edge.after));
      if (first != requirement) add_missing(first, requirement, edges, own);
      own[op.lane] = begin[op.lane] + op.lane_position;
      for (std::size_t lane = 0; lane < lanes_; ++lane) clock[lane] = own[lane];
    }
  }

  [[nodiscard]] std::size_t last_requirement() const {
    return call_ + 1 < list_.calls.size() ? list_.calls[call_ + 1].first_requirement
                                          : list_.requirements.size();
  }

  // Skips calls [from, to): lanes know as much of the calls before `to` as they knew of those
  // before `from`. A requirement of the skipped calls has been seen before, or is found on the
  // whole list.
  void leave_out(std::size_t from, std::size_t to) {
    for (std::size_t i = 0; i < lane_clock_.size(); ++i) {
      const std::size_t lane = i % lanes_;
      lane_clock_[i] +=
          list_.lane_begin[to * lanes_ + lane] - list_.lane_begin[from * lanes_ + lane];
    }
  }

  // The clock of the awaited op; null when there is no such call, or its clock is not kept.
  [[nodiscard]] const Position* clock_of(const After& after) const {
    const std::vector<std::size_t>& calls = calls_of_[index(after.block)];
    const auto call_number = [&](std::int64_t number) -> const CallList::CallSpan& {
      return list_.calls[calls[index(number)]];
    };
    const bool own = after.block == list_.calls[call_].block;
    const std::int64_t number =
        awaited_call(after, std::ssize(calls) - (own ? 1 : 0), list_.calls[call_].layer,
                     [&](std::int64_t n) { return call_number(n).layer; });
    if (number < 0 || !call_number(number).kept) return nullptr;
    return &list_.clocks[call_number(number).first_clock + index(after.op) * lanes_];
  }

  // The static edge by which the running call names the op at a position of a lane.
  [[nodiscard]] After edge(std::size_t lane, Position position) const {
    std::size_t low = 0;  // the last call that begins at or before the position
    for (std::size_t high = call_ + 1; high - low > 1;) {
      const std::size_t middle = low + (high - low) / 2;
      (list_.lane_begin[middle * lanes_ + lane] <= position ? low : high) = middle;
    }
    const CallList::CallSpan& call = list_.calls[low];
    const Position ahead = position - list_.lane_begin[low * lanes_ + lane];
    const std::int32_t op = list_.ops_on_lane[index(call.block)][lane][index(ahead)];
    const auto calls = static_cast<std::int32_t>(calls_of_[index(call.block)].size());
    const std::int32_t running = calls - (call.block == list_.calls[call_].block ? 1 : 0);
    return {call.block, op, running - call.number};
  }

  void join(Position* clock, const Position* other) const {
    if (other == nullptr) return;
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      clock[lane] = std::max(clock[lane], other[lane]);
  }

  // Marks an edge as needed where it alone covers a requirement.
  void mark_needed(const CallList::Requirement* first, const CallList::Requirement* last,
                   std::vector<StaticEdge>& edges, const Position* own) const {
    for (; first != last; ++first) {
      if (first->position <= own[first->lane]) continue;
      StaticEdge* only = nullptr;
      int covering = 0;
      for (StaticEdge& edge : edges) {
        const Position* other = clock_of(edge.after);
        if (other == nullptr || other[first->lane] < first->position) continue;
        only = &edge;
        ++covering;
      }
      if (covering == 1) only->needed = true;
    }
  }

  // Adds edges for uncovered requirements, except where another new edge implies them.
  void add_missing(const CallList::Requirement* first, const CallList::Requirement* last,
                   std::vector<StaticEdge>& edges, Position* own) {
    missing_.clear();
    for (; first != last; ++first) {
      if (first->position > own[first->lane]) {
        missing_.push_back(edge(index(first->lane), first->position));
      }
    }
    if (missing_.empty()) return;
    for (std::size_t i = 0; i < missing_.size(); ++i) {
      const bool implied = std::any_of(missing_.begin(), missing_.end(), [&](const After& other) {
        return !(other == missing_[i]) && covers(other, missing_[i]);
      });
      if (!implied) add(missing_[i], edges);
    }
    for (const After& after : missing_) join(own, clock_of(after));
    added_ = true;
  }

  // Adds an edge. Where another one waits for the same op farther back, one edge to the call of the
  // layer may serve for both, and holds up neither.
  void add(const After& after, std::vector<StaticEdge>& edges) const {
    for (StaticEdge& edge : edges) {
      if (edge.after.block != after.block || edge.after.op != after.op) continue;
      After of_layer = after;
      of_layer.calls_back = std::max(edge.after.calls_back, after.calls_back);
      of_layer.of_layer = true;
      if (of_layer.calls_back > kMostLayerCalls) continue;
      if (clock_of(of_layer) != clock_of(after)) continue;
      edge = {of_layer, true};
      return;
    }
    edges.push_back({after, true});
  }

  // Whether one awaited op's clock shows the other to be complete.
  [[nodiscard]] bool covers(const After& one, const After& other) const {
    const PlainBlock& block = program_.blocks[index(other.block)];
    const auto lane = index(block.ops[index(other.op)].lane);
    return clock_of(one)[lane] >= clock_of(other)[lane];
  }

  CallList& list_;
  const Program& program_;
  StaticEdges& edges_;
  std::size_t lanes_;
  std::size_t call_ = 0;
  std::vector<Position> lane_clock_;                // [lane][lane], after the last op of each lane
  std::vector<std::vector<std::size_t>> calls_of_;  // of each block so far
  std::vector<After> missing_;
  bool added_ = false;
};

// Edges, in one list for each block.
struct EdgesOfBlock {
  std::vector<std::size_t> begin;  // of each op
  std::vector<After> edges;
};

}  // namespace

CallList::CallList(const Program& source, const std::vector<Call>& list,
                   std::vector<std::size_t> kept)
    : program(source) {
  const std::size_t lanes = program.lanes.size();
  for (const PlainBlock& block : program.blocks) {
    ops_on_lane.emplace_back(lanes);
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      ops_on_lane.back()[index(block.ops[i].lane)].push_back(static_cast<std::int32_t>(i));
    }
  }
  std::vector<std::int32_t> calls_of(program.blocks.size(), 0);
  std::vector<Position> end(lanes, 0);
  std::vector<Position> required(lanes, -1);
  std::vector<Position> most(lanes * lanes, -1);  // [lane that requires][lane]
  std::size_t ops = 0;
  Expansion expansion(program);
  Hazards hazards(program);
  auto next = kept.begin();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const PlainBlock& block = program.blocks[index(list[i].block)];
    const bool keep = next != kept.end() && *next == i;
    calls.push_back({list[i].block, list[i].layer, calls_of[index(list[i].block)]++, keep,
                     requirements.size(), ops * lanes});
    lane_begin.insert(lane_begin.end(), end.begin(), end.end());
    for (std::size_t lane = 0; lane < lanes; ++lane) end[lane] += block.ops_on_lane[lane];
    expansion.begin(list[i]);
    if (!keep) continue;
    ++next;
    ops += block.ops.size();
    for (std::size_t op = 0; op < block.ops.size(); ++op) {
      hazards.issue(block.ops[op], expansion, required.data());
      const std::size_t own = index(block.ops[op].lane);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (lane == own || required[lane] <= most[own * lanes + lane]) continue;
        most[own * lanes + lane] = required[lane];
        requirements.push_back(
            {static_cast<std::int32_t>(op), static_cast<std::int32_t>(lane), required[lane]});
      }
    }
  }
  clocks.reset(new Position[ops * lanes]);
}

bool add_missing(CallList& list, StaticEdges& edges) { return Walk(list, edges).run(); }

bool suffice(const Program& program, const StaticEdges& edges, const std::vector<Call>& calls) {
  std::vector<EdgesOfBlock> blocks(edges.size());
  std::vector<std::int32_t> calls_back(edges.size(), 0);
  for (std::size_t b = 0; b < edges.size(); ++b) {
    for (const std::vector<StaticEdge>& op : edges[b]) {
      blocks[b].begin.push_back(blocks[b].edges.size());
      for (const StaticEdge& edge : op) {
        blocks[b].edges.push_back(edge.after);
        std::int32_t& back = calls_back[index(edge.after.block)];
        back = std::max(back, edge.after.calls_back);
      }
    }
    blocks[b].begin.push_back(blocks[b].edges.size());
  }
  CallClocks clocks(program, calls_back);
  Expansion expansion(program);
  Hazards hazards(program);
  std::vector<Position> required(program.lanes.size());
  for (const Call& call : calls) {
    expansion.begin(call);
    clocks.begin(call);
    const EdgesOfBlock& block = blocks[index(call.block)];
    const std::vector<PlainOp>& ops = program.blocks[index(call.block)].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::int32_t lane = ops[i].lane;
      hazards.issue(ops[i], expansion, required.data());
      for (std::size_t e = block.begin[i]; e < block.begin[i + 1]; ++e) {
        clocks.wait(lane, block.edges[e]);
      }
      clocks.complete(lane, i, static_cast<Position>(expansion.position(ops[i])));
      const Position* const own = clocks.of_lane(lane);
      for (std::size_t other = 0; other < required.size(); ++other) {
        if (own[other] < required[other]) return false;
      }
    }
  }
  return true;
}

}  // namespace fpdt
