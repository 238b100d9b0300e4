// Simulates shapes, in short if they have many chunks.
#include "fpdt/plan/search/estimates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "fpdt/base/math.h"
#include "fpdt/plan/few_tiles.h"
#include "fpdt/plan/lowering/lower_ops.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/sim/simulate.h"
#include "fpdt/spec/choices.h"
#include "fpdt/spec/edits.h"
#include "fpdt/spec/layer_places.h"

namespace fpdt {
namespace {

constexpr std::int64_t kFew = 12;  // chunks
// Chunks of the shortest of three steps, and between them. Directions alternate, so numbers are all
// even or all odd. Second differences are small and noisy: from 4, 8 and 12 chunks, 32 and 64 of
// them are three to four times as exact as from 6, 8 and 10.
constexpr std::int64_t kFirst = 4;
constexpr std::int64_t kApart = 4;
constexpr std::int64_t kFewHops = 32, kShortRing = 8;

// The strategy of the same shape that repeats no forward and has on the host what it stores, and
// all of what may be there in part: a fraction of few chunks is another one.
Strategy plain(const Problem& problem, Strategy strategy) {
  LayerClass one = strategy.layer_classes.front();
  one.layers = 0;
  one.recompute = Recompute::keep_attention;
  one.first_stored_chunk = 0;
  for (double& kept : one.keep) kept = std::floor(kept);
  for (const TensorClass stored :
       {TensorClass::layer_input, TensorClass::attention_output, TensorClass::lse}) {
    one.keep[static_cast<std::size_t>(stored)] = 0;
  }
  strategy.segments = {1};
  strategy.layer_classes = {one};
  return canonical(problem, strategy);
}

// Long tiles of a chunk that has many, longer: products take as long in sum, in fewer ops. So do
// few slices of experts.
Strategy coarse(const Problem& problem, const Geometry& shape, Strategy strategy) {
  constexpr std::int64_t kLong = 4096, kMany = 16, kSlices = 4;
  std::int64_t& rows = strategy.tiles.ffn_rows;
  strategy.tiles.expert_slices = std::gcd(strategy.tiles.expert_slices, kSlices);
  if (rows >= kLong) rows = std::max(rows, round_up(div_ceil(shape.product_rows(0), kMany), rows));
  return with_few_loss_tiles(problem, strategy);
}

}  // namespace

std::int64_t Estimates::simulate(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  if (shape.hops > kFewHops) {
    if (const auto found = many_hops(problem, strategy, shape)) return *found;
  }
  return simulate_whole(problem, strategy);
}

// By what versions demand, without edges: a third of the work. Edges are static, so now and then
// they make a step slower than this.
std::int64_t Estimates::simulate_whole(const Problem& problem, const Strategy& strategy) {
  ++simulated_;
  const Schedule schedule = lower_without_states(problem, strategy);
  SimulationOptions options;
  options.waits = SimulationOptions::Waits::hazards;
  return fpdt::simulate(schedule, schedule.train, machine_, options).nanoseconds;
}

// On rings over a part of the nodes, with the rows that a rank has now. None if nodes or chunks do
// not divide.
std::optional<std::int64_t> Estimates::many_hops(const Problem& problem, const Strategy& strategy,
                                                 const Geometry& shape) {
  const auto divides = [&](std::int64_t parts) {
    return shape.hops % parts == 0 && strategy.tiles.chunk_tokens % parts == 0 &&
           problem.cluster.nodes % parts == 0 && problem.cluster.nodes > parts;
  };
  std::int64_t most = shape.hops / kShortRing / 2 * 2;
  while (most >= 4 && !(divides(most) && divides(most / 2))) most -= 2;
  if (most < 4) return std::nullopt;
  std::array<std::int64_t, 2> steps{};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t parts = i == 0 ? most : most / 2;
    Problem fewer = problem;
    Strategy shorter = strategy;
    fewer.cluster.nodes /= parts;
    fewer.seq_len = shape.padded_tokens / parts;
    shorter.mesh.ring = shape.hops / parts;
    shorter.tiles.chunk_tokens /= parts;
    if (!check(fewer, shorter).empty()) return std::nullopt;
    steps[i] = simulate_whole(fewer, shorter);
  }
  return steps[0] + (most - 1) * (steps[1] - steps[0]);
}

double Estimates::many_chunks(const Strategy& strategy, const Geometry& shape) {
  const std::int64_t first = kFirst + shape.chunks % 2;
  bool grows = false;  // rows have ever more tiles
  for (const LayerKind& kind : problem_.model.kinds) {
    const bool all = kind.window_in(problem_.seq_len) == 0;
    grows = grows || all;
    // The number of tiles of a row still grows in the short steps, but not to the end.
    if (!all && shape.chunks_back(kind) >= first) {
      return static_cast<double>(simulate(problem_, strategy));
    }
  }
  std::array<double, 3> steps{};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t chunks = first + static_cast<std::int64_t>(i) * kApart;
    Problem shorter = problem_;
    shorter.seq_len -= (shape.chunks - chunks) * shape.chunk_rows;
    if (!check(shorter, strategy).empty()) {
      return static_cast<double>(simulate(problem_, strategy));
    }
    steps[i] = static_cast<double>(simulate(shorter, strategy));
  }
  const double x = static_cast<double>(shape.chunks - first) / kApart;
  if (!grows) return steps[0] + x * (steps[2] - steps[0]) / 2;
  return steps[0] + x * (steps[1] - steps[0]) +
         x * (x - 1) / 2 * (steps[2] - 2 * steps[1] + steps[0]);
}

double Estimates::stretch(const Strategy& shape, bool few) {
  auto known = std::find_if(known_.begin(), known_.end(),
                            [&](const auto& one) { return one.first == shape; });
  if (known == known_.end()) {
    const double step = few ? static_cast<double>(simulate(problem_, shape))
                            : many_chunks(shape, geometry(problem_, shape));
    known = known_.insert(known, {shape, step / floor(shape)});
  }
  return known->second;
}

double Estimates::floor(const Strategy& strategy) const {
  return static_cast<double>(compute_floor(problem_, strategy, machine_));
}

// Layers that store everything copy more, which is hidden until lanes are full. So a few numbers of
// such layers are simulated, and the next ones on both sides say what one takes. They never wait
// less. Where three short steps say so, it is because all of these wait for copies.
double Estimates::stretch_of(const Strategy& shape, std::int64_t everything, bool few) {
  constexpr std::int64_t kParts = 4;
  const std::int64_t layers = problem_.model.layers;
  const auto point = [&](std::int64_t number) {
    const Strategy made =
        canonical(problem_, with_stored(problem_, shape, {number, layers - number}));
    const double plain = stretch(shape, few);
    return check(problem_, made).empty() ? std::max(plain, stretch(made, few)) : plain;
  };
  const std::int64_t low = kParts * everything / layers;
  const std::int64_t fewer = low * layers / kParts, more = (low + 1) * layers / kParts;
  const double at_fewer = point(fewer);
  if (fewer == everything) return at_fewer;
  return at_fewer + static_cast<double>(everything - fewer) / static_cast<double>(more - fewer) *
                        (point(more) - at_fewer);
}

bool Estimates::simulates(const Strategy& strategy) const {
  return geometry(problem_, strategy).chunks <= kFew && longest_segment(strategy) == 1;
}

std::int64_t Estimates::nanoseconds(const Strategy& strategy) {
  const Geometry shape = geometry(problem_, strategy);
  const bool few = shape.chunks <= kFew;
  const bool itself = simulates(strategy);
  const Strategy alike = coarse(problem_, shape, itself ? strategy : plain(problem_, strategy));
  double stretched = 0;
  const Strategy* like = &alike;
  if (check(problem_, alike).empty()) {
    stretched = stretch(alike, few);
    const StoredLayers stored = itself ? StoredLayers{} : stored_layers(problem_, strategy);
    if (stored.everything > 0) stretched = stretch_of(alike, stored.everything, few);
  } else {
    like = &strategy;
    stretched = stretch(strategy, true);
  }
  const double tiles = loss(strategy) - loss(*like);
  return static_cast<std::int64_t>(floor(strategy) * stretched + tiles);
}

double Estimates::loss(const Strategy& strategy) {
  const Tiles& tiles = strategy.tiles;
  const Loss key{tiles.loss_rows, tiles.loss_vocabulary, tiles.chunk_tokens,
                 problem_.ranks() / strategy.mesh.replicas, strategy.micro_batches};
  const auto known = losses_.find(key);
  if (known != losses_.end()) return known->second;
  return losses_[key] = loss_nanoseconds(problem_, strategy, machine_);
}

}  // namespace fpdt
