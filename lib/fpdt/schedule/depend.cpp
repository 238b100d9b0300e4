// Edges from versions and issue order.
//
// A pass walks the calls once with one vector clock per lane: clock[k] is the latest position of
// lane k that is known complete. An op's requirements are one position per lane. What the clock of
// its lane predecessor and its edges do not cover becomes a static edge. Passes repeat until
// nothing is added; then edges that no call needs are removed, one of an op at a time, and what
// that uncovers is added again, until nothing changes.
#include "fpdt/schedule/depend.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/hazards.h"

namespace fpdt {
namespace {

using Position = Hazards::Position;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// An edge and whether some call needed it.
struct Edge {
  After after;
  bool needed = false;
};

// [block][op]
using Edges = std::vector<std::vector<std::vector<Edge>>>;

// What has been issued, call by call, so that edges become positions and positions become edges.
class Issued {
 public:
  explicit Issued(const Program& program)
      : program_(&program), lanes_(program.lanes.size()), calls_of_(program.blocks.size()) {
    for (const PlainBlock& block : program.blocks) {
      std::vector<std::vector<std::int32_t>> on_lane(lanes_);
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        on_lane[index(block.ops[i].lane)].push_back(static_cast<std::int32_t>(i));
      }
      ops_on_lane_.push_back(std::move(on_lane));
    }
    end_.assign(lanes_, 0);
  }

  void begin(std::int32_t block, bool kept) {
    block_.push_back(block);
    number_.push_back(static_cast<std::int32_t>(calls_of_[index(block)].size()));
    calls_of_[index(block)].push_back(block_.size() - 1);
    lane_begin_.insert(lane_begin_.end(), end_.begin(), end_.end());
    const PlainBlock& plain = program_->blocks[index(block)];
    for (std::size_t lane = 0; lane < lanes_; ++lane) end_[lane] += plain.ops_on_lane[lane];
    clock_begin_.push_back(kept ? clocks_.size() : kNone);
    if (kept) clocks_.resize(clocks_.size() + plain.ops.size() * lanes_, -1);
  }

  [[nodiscard]] const std::vector<Position>& end() const { return end_; }

  // The clock of an op of the running call.
  Position* clock(std::size_t op) { return &clocks_[clock_begin_.back() + op * lanes_]; }
  Position position(const PlainOp& op) const {
    return lane_begin_[(block_.size() - 1) * lanes_ + index(op.lane)] + op.lane_position;
  }

  // The clock of the awaited op; null where there is no such call, or none that was kept.
  [[nodiscard]] const Position* clock(const After& after) const {
    const auto& calls = calls_of_[index(after.block)];
    const bool own = after.block == block_.back();
    const auto number = static_cast<std::int64_t>(calls.size()) - (own ? 1 : 0) - after.calls_back;
    if (number < 0) return nullptr;
    const std::size_t begin = clock_begin_[calls[index(number)]];
    return begin == kNone ? nullptr : &clocks_[begin + index(after.op) * lanes_];
  }

  // The static edge by which the running call names the op at a position of a lane.
  [[nodiscard]] After edge(std::size_t lane, Position position) const {
    std::size_t low = 0;  // the last call that begins at or before the position
    for (std::size_t high = block_.size(); high - low > 1;) {
      const std::size_t middle = low + (high - low) / 2;
      (lane_begin_[middle * lanes_ + lane] <= position ? low : high) = middle;
    }
    const std::int32_t block = block_[low];
    const auto op =
        ops_on_lane_[index(block)][lane][index(position - lane_begin_[low * lanes_ + lane])];
    const auto calls = static_cast<std::int32_t>(calls_of_[index(block)].size());
    const std::int32_t running = calls - (block == block_.back() ? 1 : 0);
    return {block, op, running - number_[low]};
  }

 private:
  const Program* program_;
  std::size_t lanes_;
  std::vector<std::vector<std::size_t>> calls_of_;                   // of each block
  std::vector<std::vector<std::vector<std::int32_t>>> ops_on_lane_;  // [block][lane]
  std::vector<std::int32_t> block_;                                  // of each call
  std::vector<std::int32_t> number_;      // of each call among its block's
  std::vector<Position> lane_begin_;      // [call][lane]
  std::vector<std::size_t> clock_begin_;  // of each call in clocks_
  std::vector<Position> clocks_;          // [op][lane]
  std::vector<Position> end_;             // of each lane
};

// One walk over a call list.
class Walk {
 public:
  Walk(const Program& program, Edges& edges)
      : program_(program),
        edges_(edges),
        lanes_(program.lanes.size()),
        issued_(program),
        hazards_(program),
        expansion_(program),
        lane_clock_(lanes_ * lanes_, -1),
        required_(lanes_, -1) {}

  // `kept` lists the calls to look at; the others only advance. Returns whether an edge was added.
  bool run(const std::vector<Call>& calls, const std::vector<std::size_t>& kept) {
    auto next = kept.begin();
    bool gap = false;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const bool keep = next != kept.end() && *next == i;
      if (keep && gap) forget();
      expansion_.begin(calls[i]);
      issued_.begin(calls[i].block, keep);
      gap = !keep;
      if (!keep) continue;
      ++next;
      const PlainBlock& block = program_.blocks[index(calls[i].block)];
      for (std::size_t op = 0; op < block.ops.size(); ++op) {
        step(block.ops[op], edges_[index(calls[i].block)][op], issued_.clock(op));
      }
    }
    return added_;
  }

 private:
  // After calls that were left out, all that came before counts as complete: what would be required
  // across the gap was seen before it, or is found on the whole list.
  void forget() {
    for (std::size_t lane = 0; lane < lanes_ * lanes_; ++lane) {
      lane_clock_[lane] = std::max(lane_clock_[lane], issued_.end()[lane % lanes_] - 1);
    }
  }

  void step(const PlainOp& op, std::vector<Edge>& edges, Position* clock) {
    hazards_.issue(op, expansion_, required_.data());
    Position* const own = &lane_clock_[index(op.lane) * lanes_];
    mark_needed(edges, own);
    for (const Edge& edge : edges) join(own, issued_.clock(edge.after));
    add_missing(edges, own);
    const Position position = issued_.position(op);
    own[op.lane] = position;
    std::copy_n(own, lanes_, clock);
  }

  void join(Position* clock, const Position* other) const {
    if (other == nullptr) return;
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      clock[lane] = std::max(clock[lane], other[lane]);
  }

  // An edge is needed where it alone covers a requirement.
  void mark_needed(std::vector<Edge>& edges, const Position* own) const {
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (required_[lane] <= own[lane]) continue;
      Edge* only = nullptr;
      int covering = 0;
      for (Edge& edge : edges) {
        const Position* other = issued_.clock(edge.after);
        if (other == nullptr || other[lane] < required_[lane]) continue;
        only = &edge;
        ++covering;
      }
      if (covering == 1) only->needed = true;
    }
  }

  // Adds edges for what is required and not covered, except what another of them implies.
  void add_missing(std::vector<Edge>& edges, Position* own) {
    missing_.clear();
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (required_[lane] > own[lane]) missing_.push_back(issued_.edge(lane, required_[lane]));
    }
    if (missing_.empty()) return;
    for (std::size_t i = 0; i < missing_.size(); ++i) {
      const bool implied = std::any_of(missing_.begin(), missing_.end(), [&](const After& other) {
        return !(other == missing_[i]) && covers(other, missing_[i]);
      });
      if (!implied) edges.push_back({missing_[i], true});
    }
    for (const After& after : missing_) join(own, issued_.clock(after));
    added_ = true;
  }

  // Whether the clock of one awaited op knows another to be complete.
  [[nodiscard]] bool covers(const After& one, const After& other) const {
    const PlainBlock& block = program_.blocks[index(other.block)];
    const auto lane = index(block.ops[index(other.op)].lane);
    return issued_.clock(one)[lane] >= issued_.clock(other)[lane];
  }

  const Program& program_;
  Edges& edges_;
  std::size_t lanes_;
  Issued issued_;
  Hazards hazards_;
  Expansion expansion_;
  std::vector<Position> lane_clock_;  // [lane][lane], after the last op of each lane
  std::vector<Position> required_;    // [lane], of the current op
  std::vector<After> missing_;
  bool added_ = false;
};

// Block and op that wait, and for what.
using Removal = std::tuple<std::size_t, std::size_t, After>;

// Removes at most one edge of each op that no call needed, the farthest back, and none for the
// second time.
bool prune(Edges& edges, std::set<Removal>& removals) {
  bool removed = false;
  const auto nearer = [](const Edge& a, const Edge& b) {
    return std::pair(a.after.calls_back, -a.after.op) < std::pair(b.after.calls_back, -b.after.op);
  };
  for (std::size_t b = 0; b < edges.size(); ++b) {
    for (std::size_t i = 0; i < edges[b].size(); ++i) {
      std::vector<Edge>& op = edges[b][i];
      auto worst = op.end();
      for (auto edge = op.begin(); edge != op.end(); ++edge) {
        if (edge->needed || removals.count({b, i, edge->after}) > 0) continue;
        if (worst == op.end() || nearer(*worst, *edge)) worst = edge;
      }
      if (worst == op.end()) continue;
      removals.insert({b, i, worst->after});
      op.erase(worst);
      removed = true;
    }
  }
  return removed;
}

void forget_needs(Edges& edges) {
  for (auto& block : edges) {
    for (auto& op : block) {
      for (Edge& edge : op) edge.needed = false;
    }
  }
}

struct CallList {
  const std::vector<Call>* calls;
  std::vector<std::size_t> kept;
};

bool add_all(const Program& program, Edges& edges, const std::vector<CallList>& lists) {
  bool added = false;
  for (const CallList& list : lists) {
    if (Walk(program, edges).run(*list.calls, list.kept)) added = true;
  }
  return added;
}

// Edges that came back after they were removed: one of two may do for both, or one call of an edge
// for its next. Each is removed if the others suffice without it.
void try_removals(const Program& program, Edges& edges, const std::vector<CallList>& lists,
                  const std::set<Removal>& removals) {
  for (const auto& [b, i, after] : removals) {
    const auto is_it = [wanted = after](const Edge& edge) { return edge.after == wanted; };
    const std::vector<Edge>& op = edges[b][i];
    const auto at = std::find_if(op.begin(), op.end(), is_it);
    if (at == op.end() || at->needed) continue;
    Edges without = edges;
    without[b][i].erase(without[b][i].begin() + (at - op.begin()));
    if (!add_all(program, without, lists)) edges = std::move(without);
  }
}

// Adds and prunes until nothing changes. No edge is pruned twice, so this ends.
void settle(const Program& program, Edges& edges, const std::vector<CallList>& lists) {
  std::set<Removal> removals;
  do {
    while (add_all(program, edges, lists)) {
    }
    forget_needs(edges);
    add_all(program, edges, lists);
  } while (prune(edges, removals));
  try_removals(program, edges, lists, removals);
}

std::vector<std::size_t> all_of(const std::vector<Call>& calls) {
  std::vector<std::size_t> all(calls.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

// The values of one argument that the window keeps: all of a few, else the first and last three.
std::set<std::int32_t> kept_values(const std::vector<Call>& calls, std::int32_t Call::*argument) {
  constexpr std::size_t kFew = 8;
  std::set<std::int32_t> values;
  for (const Call& call : calls) values.insert(call.*argument);
  if (values.size() <= kFew) return values;
  values.erase(std::next(values.begin(), 3), std::prev(values.end(), 3));
  return values;
}

}  // namespace

std::vector<std::size_t> window(const std::vector<Call>& calls) {
  const auto layers = kept_values(calls, &Call::layer);
  const auto micro_batches = kept_values(calls, &Call::micro_batch);
  const auto segments = kept_values(calls, &Call::segment);
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (layers.count(calls[i].layer) > 0 && micro_batches.count(calls[i].micro_batch) > 0 &&
        segments.count(calls[i].segment) > 0) {
      kept.push_back(i);
    }
  }
  return kept;
}

void depend(Schedule& schedule) {
  Edges edges;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) op.after.clear();
    edges.emplace_back(block.ops.size());
  }
  const Program program(schedule);
  std::vector<CallList> windows;
  std::vector<CallList> whole;
  for (const std::vector<Call>* calls : {&schedule.train, &schedule.evaluate}) {
    windows.push_back({calls, window(*calls)});
    whole.push_back({calls, all_of(*calls)});
  }
  settle(program, edges, windows);
  if (add_all(program, edges, whole)) settle(program, edges, whole);
  for (std::size_t b = 0; b < edges.size(); ++b) {
    for (std::size_t i = 0; i < edges[b].size(); ++i) {
      std::vector<After>& after = schedule.blocks[b].ops[i].after;
      for (const Edge& edge : edges[b][i]) after.push_back(edge.after);
      std::sort(after.begin(), after.end(), [](const After& x, const After& y) {
        return std::tuple(x.calls_back != 0, x.block, x.calls_back, x.op) <
               std::tuple(y.calls_back != 0, y.block, y.calls_back, y.op);
      });
    }
  }
}

}  // namespace fpdt
