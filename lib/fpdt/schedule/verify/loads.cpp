// S509: where experts are balanced, the rows of each layer are counted once.
//
// Each layer has one call a micro-batch that counts, and that call counts all that it routes: the
// rows of the layer, since all have an output.
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// The routes of a tile within a block.
using Key = std::tuple<BufferIndex, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t>;
Key key_of(const Operand& routes) {
  const Version& v = routes.version;
  return {routes.buffer, v.relative, v.offset, v.layer, v.micro_batch, v.segment, v.place};
}

// Whether a schedule trains with loads: its backward uses them.
bool balances(const Schedule& schedule) {
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      const auto* route = std::get_if<RouteBackward>(&op.body);
      if (route != nullptr && route->loads.present()) return true;
    }
  }
  return false;
}

// What a block does with the rows of its layer.
struct Rows {
  bool routed = false, counted = false;
};

Rows rows_of(const Block& block, Findings& findings) {
  Rows found;
  std::map<Key, std::int64_t> counted;
  for (const Op& op : block.ops) {
    const auto* loads = std::get_if<ExpertLoads>(&op.body);
    if (loads == nullptr) continue;
    found.counted = true;
    if (++counted[key_of(loads->routes)] == 1) continue;
    findings.add("S509", place_of(block, op), "its rows are counted already");
  }
  for (const Op& op : block.ops) {
    const auto* route = std::get_if<Route>(&op.body);
    if (route == nullptr) continue;
    found.routed = true;
    if (!found.counted || counted.count(key_of(route->routes.operand)) > 0) continue;
    findings.add("S509", place_of(block, op), "its rows are not counted, as those of others are");
  }
  return found;
}

}  // namespace

void check_loads(const Schedule& schedule, Findings& findings) {
  if (!balances(schedule)) return;
  std::vector<Rows> rows;
  for (const Block& block : schedule.blocks) rows.push_back(rows_of(block, findings));
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> calls;  // of a layer that count
  for (const Call& call : schedule.train) {
    const Rows& one = rows[static_cast<std::size_t>(call.block)];
    if (one.routed) calls[{call.micro_batch, call.layer}] += one.counted ? 1 : 0;
  }
  for (const auto& [at, count] : calls) {
    if (count == 1) continue;
    findings.add("S509", fmt::format("train.layer {}", at.second),
                 fmt::format("{} calls of micro-batch {} count the rows of its experts, expected 1",
                             count, at.first));
  }
}

}  // namespace fpdt
