// Adds and removes edges until each is needed and none is missing.
//
// Walks repeat until they add nothing. Then each op loses at most one edge that no call needs, and
// new walks add the edges that are now missing, until nothing changes.
#include "fpdt/schedule/depend.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "fpdt/schedule/edge_walk.h"

namespace fpdt {
namespace {

// The waiting block and op, and the edge.
using Removal = std::tuple<std::size_t, std::size_t, After>;

// Removes from each op at most one edge that no call needed, the one that reaches farthest back.
// Never removes the same edge twice.
bool prune(StaticEdges& edges, std::set<Removal>& removals) {
  bool removed = false;
  const auto nearer = [](const StaticEdge& a, const StaticEdge& b) {
    return std::pair(a.after.calls_back, -a.after.op) < std::pair(b.after.calls_back, -b.after.op);
  };
  for (std::size_t b = 0; b < edges.size(); ++b) {
    for (std::size_t i = 0; i < edges[b].size(); ++i) {
      std::vector<StaticEdge>& op = edges[b][i];
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

void forget_needs(StaticEdges& edges) {
  for (auto& block : edges) {
    for (auto& op : block) {
      for (StaticEdge& edge : op) edge.needed = false;
    }
  }
}

bool add_all(std::vector<CallList>& lists, StaticEdges& edges) {
  bool added = false;
  for (CallList& list : lists) {
    if (add_missing(list, edges)) added = true;
  }
  return added;
}

// Tries again to remove edges that came back after their removal. An edge comes back when it can
// replace another one, or when one of its calls covers the next. Each is removed if the remaining
// edges suffice.
void try_removals(std::vector<CallList>& lists, StaticEdges& edges,
                  const std::set<Removal>& removals) {
  for (const auto& [b, i, after] : removals) {
    const auto is_it = [wanted = after](const StaticEdge& edge) { return edge.after == wanted; };
    const std::vector<StaticEdge>& op = edges[b][i];
    const auto at = std::find_if(op.begin(), op.end(), is_it);
    if (at == op.end() || at->needed) continue;
    StaticEdges without = edges;
    without[b][i].erase(without[b][i].begin() + (at - op.begin()));
    if (!add_all(lists, without)) edges = std::move(without);
  }
}

// Adds and prunes on the calls that `kept` chooses until nothing changes. No edge is pruned twice,
// so this ends.
void settle(const Program& program, StaticEdges& edges, const Schedule& schedule,
            std::vector<std::size_t> (*kept)(const std::vector<Call>&)) {
  std::vector<CallList> lists;
  for (const std::vector<Call>* calls : {&schedule.train, &schedule.evaluate}) {
    lists.emplace_back(program, *calls, kept(*calls));
  }
  std::set<Removal> removals;
  do {
    do {
      forget_needs(edges);
    } while (add_all(lists, edges));
  } while (prune(edges, removals));
  try_removals(lists, edges, removals);
}

std::vector<std::size_t> all_of(const std::vector<Call>& calls) {
  std::vector<std::size_t> all(calls.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

using Numbers = std::set<std::int32_t>;  // of layers, segments or micro-batches

// Of segments and micro-batches: one that begins or ends a step, and one beside it.
constexpr std::ptrdiff_t kAtEachEnd = 2;
// Of layers. Parameters are gathered a layer ahead, into the slot of the layer before the one at
// work: the fourth layer is the first whose gather waits for one that is neither first nor last.
constexpr std::ptrdiff_t kLayersAtEachEnd = 4;

// Keeps so many of the first and of the last numbers.
Numbers thinned(Numbers all, std::ptrdiff_t at_each_end = kAtEachEnd) {
  if (std::ssize(all) > 2 * at_each_end) {
    all.erase(std::next(all.begin(), at_each_end), std::prev(all.end(), at_each_end));
  }
  return all;
}

// The same of all segments together, and of those of each block that has hardly any among them.
Numbers thinned_segments(const std::map<std::int32_t, Numbers>& of_blocks) {
  Numbers all;
  for (const auto& [block, own] : of_blocks) all.insert(own.begin(), own.end());
  const Numbers of_all = thinned(all);
  Numbers kept = of_all;
  for (const auto& [block, own] : of_blocks) {
    const auto among = std::count_if(own.begin(), own.end(),
                                     [&](std::int32_t one) { return of_all.count(one) > 0; });
    if (among < std::min(kAtEachEnd, std::ssize(own))) kept.merge(thinned(own));
  }
  return kept;
}

// Adds the segments in which blocks follow each other as in none that is kept: three in a row,
// since gathers are between those of layers.
void keep_successions(const std::vector<Call>& calls, Numbers& segments) {
  constexpr std::size_t kInARow = 3;
  std::set<std::array<std::int32_t, kInARow>> seen;
  for (const bool others : {false, true}) {
    for (std::size_t i = 0; i + kInARow <= calls.size(); ++i) {
      std::array<std::int32_t, kInARow> blocks{};
      bool kept = true;
      for (std::size_t k = 0; k < kInARow; ++k) {
        blocks[k] = calls[i + k].block;
        kept = kept && segments.count(calls[i + k].segment) > 0;
      }
      if ((!kept && !others) || !seen.insert(blocks).second) continue;
      for (std::size_t k = 0; k < kInARow; ++k) segments.insert(calls[i + k].segment);
    }
  }
}

}  // namespace

std::vector<std::size_t> window(const std::vector<Call>& calls) {
  std::map<std::int32_t, Numbers> segments_of;  // of each block
  Numbers micro_batches;
  for (const Call& call : calls) {
    segments_of[call.block].insert(call.segment);
    micro_batches.insert(call.micro_batch);
  }
  // Layers are thinned within their segment, so that every segment that is kept keeps both its
  // ends; without segments, within their block.
  const auto within = [&](const Call& call) {
    return segments_of[call.block].size() > 1 ? call.segment : -1 - call.block;
  };
  std::map<std::int32_t, Numbers> layers;
  for (const Call& call : calls) layers[within(call)].insert(call.layer);
  Numbers segments = thinned_segments(segments_of);
  keep_successions(calls, segments);
  micro_batches = thinned(std::move(micro_batches));
  for (auto& [segment, of_segment] : layers) {
    of_segment = thinned(std::move(of_segment), kLayersAtEachEnd);
  }
  // What a layer does outside segments, such as to begin its sums, runs beside what it does inside.
  Numbers beside;
  for (const auto& [segment, of_segment] : layers) {
    if (segment < 0 || segments.count(segment) > 0) {
      beside.insert(of_segment.begin(), of_segment.end());
    }
  }
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const Numbers& of_layers = within(call) < 0 ? beside : layers[within(call)];
    if (segments.count(call.segment) > 0 && micro_batches.count(call.micro_batch) > 0 &&
        of_layers.count(call.layer) > 0) {
      kept.push_back(i);
    }
  }
  return kept;
}

namespace {

// [block][op], in the order of a schedule file.
std::vector<std::vector<std::vector<After>>> edges_of(const Program& program) {
  const Schedule& schedule = *program.schedule;
  StaticEdges edges;
  for (const PlainBlock& block : program.blocks) edges.emplace_back(block.ops.size());
  settle(program, edges, schedule, window);
  if (!suffice(program, edges, schedule.train) || !suffice(program, edges, schedule.evaluate)) {
    settle(program, edges, schedule, all_of);
  }
  std::vector<std::vector<std::vector<After>>> all;
  for (const auto& block : edges) {
    auto& of_block = all.emplace_back();
    for (const std::vector<StaticEdge>& op : block) {
      std::vector<After>& after = of_block.emplace_back();
      for (const StaticEdge& edge : op) after.push_back(edge.after);
      std::sort(after.begin(), after.end(), [](const After& x, const After& y) {
        return std::tuple(x.calls_back != 0, x.block, x.calls_back, x.op) <
               std::tuple(y.calls_back != 0, y.block, y.calls_back, y.op);
      });
    }
  }
  return all;
}

}  // namespace

void depend(Schedule& schedule) {
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) op.after.clear();
  }
  auto edges = edges_of(Program(schedule));
  for (std::size_t b = 0; b < edges.size(); ++b) {
    std::vector<Op>& ops = schedule.blocks[b].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].after = std::move(edges[b][i]);
  }
}

void depend(Program& program) {
  const auto edges = edges_of(program);
  program.set_edges([&](std::size_t block, std::size_t op) -> const std::vector<After>& {
    return edges[block][op];
  });
}

}  // namespace fpdt
