// Lengthens tiles, leaves layers out, and gives buffers the sizes that the strategy states.
#include "fpdt/plan/few_tiles.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fpdt/base/math.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/spec/attention_kernels.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

constexpr std::int64_t kRowTiles = 3;   // the first, the last and one between
constexpr std::int64_t kWordTiles = 2;  // one that begins a sum and one that adds to it

// A tile of 0 is one of all rows or words.
void lengthen(std::int64_t& tile, std::int64_t all, std::int64_t most) {
  if (tile > 0 && div_ceil(all, tile) > most) tile = div_ceil(all, most);
}

// The placement of a strategy by a step that has buffers of the same names.
Placement placed_as(const Problem& small, const Strategy& few, const Problem& problem,
                    const Strategy& strategy) {
  const std::vector<LibraryTiles> library = library_tiles(problem, strategy);
  ProgramBuilder uses;
  Schedule schedule = sketch(small, few, library, uses);
  Program program = uses.finish(schedule);
  depend(program);
  const std::vector<Buffer> declared = declared_buffers(problem, strategy, library);
  std::unordered_map<std::string_view, const Buffer*> by_name;
  for (const Buffer& buffer : declared) by_name.emplace(buffer.name, &buffer);
  for (Buffer& buffer : schedule.buffers) {
    const Buffer& whole = *by_name.at(buffer.name);
    buffer.shape = whole.shape;
    buffer.slots = whole.slots;
  }
  return placement_of(program);
}

}  // namespace

Strategy with_few_loss_tiles(const Problem& problem, Strategy strategy) {
  lengthen(strategy.tiles.loss_rows, geometry(problem, strategy).local_rows(0), kRowTiles);
  lengthen(strategy.tiles.loss_vocabulary, problem.model.vocabulary, kWordTiles);
  return strategy;
}

double loss_nanoseconds(const Problem& problem, const Strategy& strategy, const Machine& machine) {
  const std::int64_t chunk = strategy.tiles.chunk_tokens;
  Problem one = problem;
  one.seq_len = std::min(problem.seq_len, chunk);
  // The head does not depend on what layers do.
  Strategy few = strategy;
  one.model = one_layer(problem.model);
  few.segments = {1};
  few.layer_classes.resize(1);
  few.layer_classes.front().layers = 0;
  few.tiles.ffn_rows = 0;
  if (!check(one, few).empty()) one.seq_len = problem.seq_len;
  const Schedule schedule = lower_without_states(one, few);
  double picoseconds = 0;
  for (const Block& block : schedule.blocks) {
    if (block.name != "head") continue;
    for (const Op& op : block.ops) {
      if (op.lane.kind != LaneKind::compute) continue;
      picoseconds += static_cast<double>(machine.picoseconds(demand(schedule, op)));
    }
  }
  const double chunks = static_cast<double>(problem.seq_len) / static_cast<double>(one.seq_len);
  return 1e-3 * picoseconds * chunks * static_cast<double>(strategy.micro_batches);
}

Placement placement_of(const Problem& problem, const Strategy& strategy) {
  return placed_as(problem, with_few_loss_tiles(problem, strategy), problem, strategy);
}

Placement placement_by_few_layers(const Problem& problem, const Strategy& strategy) {
  // A gather is a layer ahead, into the slot of the layer before the one at work.
  constexpr std::int64_t kInARow = 4;
  Problem small = problem;
  Strategy few = with_few_loss_tiles(problem, strategy);
  shorten_layers(few, small.model, kInARow);
  return placed_as(small, few, problem, strategy);
}

}  // namespace fpdt
