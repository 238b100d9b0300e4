// Turns names of blocks into calls of the step.
#include "plan/graph.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/suggest.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/schedule/verify.h"

namespace fpdt {
namespace {

// A line for each block of a step: what --block takes.
std::string known_blocks(const Schedule& schedule) {
  std::vector<std::int64_t> calls(schedule.blocks.size(), 0);
  for (const Call& call : schedule.train) ++calls[static_cast<std::size_t>(call.block)];
  std::string text;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == 0) continue;
    const std::size_t ops = schedule.blocks[i].ops.size();
    text += fmt::format("\n  {:<20}{:>6} {}, {} {}", schedule.blocks[i].name, ops,
                        ops == 1 ? "op" : "ops", calls[i], calls[i] == 1 ? "call" : "calls");
  }
  return text;
}

// The calls of a block in a step. InputError for a block that it does not have.
std::vector<std::int32_t> calls_of(const Schedule& schedule, const std::string& name) {
  std::vector<std::int32_t> calls;
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < schedule.train.size(); ++i) {
    const Block& block = schedule.blocks[static_cast<std::size_t>(schedule.train[i].block)];
    known.push_back(block.name);
    if (block.name == name) calls.push_back(static_cast<std::int32_t>(i));
  }
  if (!calls.empty()) return calls;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const std::string nearest = nearest_word(name, known);
  throw InputError(fmt::format("--block {}: no such block.{} A step has{}", name,
                               nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest),
                               known_blocks(schedule)));
}

// The middle call of the first block, and of each other one the call that is nearest to it.
std::vector<std::int32_t> calls_to_draw(const Schedule& schedule, std::string_view blocks) {
  std::vector<std::int32_t> shown;
  for (std::size_t begin = 0, end = 0; begin <= blocks.size(); begin = end + 1) {
    end = std::min(blocks.find(',', begin), blocks.size());
    const std::string block(blocks.substr(begin, end - begin));
    const std::vector<std::int32_t> calls = calls_of(schedule, block);
    const std::int32_t middle = shown.empty() ? calls[calls.size() / 2] : shown.front();
    shown.push_back(
        *std::min_element(calls.begin(), calls.end(), [middle](std::int32_t a, std::int32_t b) {
          return std::abs(a - middle) < std::abs(b - middle);
        }));
  }
  std::sort(shown.begin(), shown.end());
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  return shown;
}

// "20-60" as the ops from the 20th to the 60th.
void parse_ops(const std::string& text, std::size_t ops, GraphView& view) {
  const std::string_view all = text;
  const std::size_t dash = std::min(all.find('-'), all.size() - 1);
  const std::int64_t first = parse_tokens(all.substr(0, dash)).value_or(0);
  const std::int64_t last = parse_tokens(all.substr(dash + 1)).value_or(0);
  if (first < 1 || last < first || last > static_cast<std::int64_t>(ops)) {
    throw InputError(fmt::format("--ops {}: expected two numbers from 1 to {}, such as 1-{}", text,
                                 ops, (ops + 1) / 2));
  }
  view.first = static_cast<std::size_t>(first) - 1;
  view.last = static_cast<std::size_t>(last);
}

}  // namespace

DependencyGraph load_graph(const std::string& path, std::string_view blocks,
                           const std::string& ops) {
  const VerifiedSchedule file = verified(load_schedule(path));
  const Schedule& schedule = file.schedule();
  if (blocks.empty()) {
    throw InputError(
        fmt::format("--graph: which block? --block NAME takes{}", known_blocks(schedule)));
  }
  GraphView view;
  view.calls = calls_to_draw(schedule, blocks);
  std::size_t all = 0;
  for (const std::int32_t call : view.calls) {
    const Call& one = schedule.train[static_cast<std::size_t>(call)];
    all += schedule.blocks[static_cast<std::size_t>(one.block)].ops.size();
  }
  if (!ops.empty()) parse_ops(ops, all, view);
  return dependency_graph(Program(schedule), schedule.train, view);
}

}  // namespace fpdt
