// The lightest strategies, one after the other.
#include "fpdt/plan/search/feasible.h"

#include <algorithm>
#include <array>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/plan/fit.h"

namespace fpdt {
namespace {

// The shortest of the lengths that the search tries, and from there half as long, again and again,
// as far as schedules go. The latter save little memory and take more time, so that they matter
// only where nothing else fits.
std::vector<std::int64_t> short_lengths(const Problem& problem, const Pins& pins,
                                        const Split& split) {
  constexpr std::size_t kShortest = 3;
  std::vector<std::int64_t> lengths = lengths_of(problem, pins, split);
  if (lengths.size() > kShortest) lengths.resize(kShortest);
  if (pins.chunk_tokens) return lengths;
  const std::int64_t unit = problem.ranks() / split.data_parallel * problem.cluster.row_multiple;
  std::int64_t shorter = lengths.front();
  while (shorter > unit) {
    shorter = round_up(shorter / 2, unit);
    const Strategy strategy = entered(problem, pins, skeleton_of(problem, split, shorter));
    const bool held = pins.method == nullptr || pins.method->holds(problem, strategy);
    if (!held || !check(problem, strategy).empty()) break;
    lengths.push_back(shorter);
  }
  return lengths;
}

// Strategies by ascending need of memory, for feasibility tests.
std::vector<Strategy> lightest_strategies(const Problem& problem, const Pins& pins) {
  if (pins.strategy) return {*pins.strategy};
  const std::vector<Split> all_splits = splits(problem, pins);
  if (all_splits.empty()) return {};
  const Split& split = all_splits.front();
  std::vector<Strategy> all;
  for (const std::int64_t tokens : short_lengths(problem, pins, split)) {
    for (const std::vector<std::int64_t>& segments : segment_shapes(problem.model.layers)) {
      for (const auto& homes : kStateHomes) {
        for (const BackwardOrder order : {BackwardOrder::q_outer, BackwardOrder::kv_outer}) {
          Strategy strategy = skeleton_of(problem, split, tokens);
          strategy.segments = segments;
          strategy.tiles.backward_order = order;
          strategy.copies.overlap_all_to_all = false;
          strategy.tiles.loss_rows =
              std::max<std::int64_t>(1024, least_loss_rows(problem, strategy));
          strategy.keep = homes;
          strategy = entered(problem, pins, roomy(problem, strategy));
          if (check(problem, strategy).empty()) all.push_back(strategy);
          const Strategy in_slices = sliced(problem, strategy, ExpertLoop::tiles);
          if (in_slices != strategy && check(problem, in_slices).empty()) all.push_back(in_slices);
        }
      }
    }
  }
  if (pins.method != nullptr) return all;
  // The strategies of a method may keep more on the device and so need less of the host.
  for (const Method* method : methods()) {
    // Ranks that share anything else hold as many tokens as those that share heads.
    if (method->sharing != Sharing::heads && split.ring == 1) continue;
    Pins region = pins;
    region.method = method;
    for (const Strategy& strategy : lightest_strategies(problem, region)) {
      if (std::find(all.begin(), all.end(), strategy) == all.end()) all.push_back(strategy);
    }
  }
  return all;
}

Strategy lightest(const Problem& problem, const Pins& pins, const Strategy& strategy) {
  if (pins.strategy) return strategy;
  const Strategy light = with_host_relieved(problem, with_stored(problem, strategy, {}));
  return stays(problem, pins, strategy, light) ? light : strategy;
}

}  // namespace

std::string_view word(Binding binding) {
  constexpr std::array<std::string_view, 5> words{"device", "host", "compute", "copies",
                                                  "collectives"};
  return words[static_cast<std::size_t>(binding)];
}

Shortage shortage(const Problem& problem, const Pins& pins) {
  const std::vector<Strategy> all = lightest_strategies(problem, pins);
  FPDT_ASSERT(!all.empty());
  Shortage least;
  bool device_fits = false;
  bool first = true;
  for (const Strategy& strategy : all) {
    const Usage need = usage(problem, strategy);
    const bool fits = need.device <= problem.device_budget;
    const Strategy light = fits ? lightest(problem, pins, strategy) : strategy;
    const Bytes bytes = fits ? usage(problem, light).host_node : need.device;
    if (device_fits && !fits) continue;
    if (!first && fits == device_fits && bytes >= least.need) continue;
    least = {fits ? Binding::host : Binding::device, bytes,
             fits ? problem.host_budget : problem.device_budget, light};
    device_fits = fits;
    first = false;
  }
  return least;
}

std::vector<Need> needs(const Problem& problem, const Shortage& shortage) {
  std::vector<Need> all{{shortage.binding, shortage.need, shortage.have}};
  const Usage need = usage(problem, shortage.closest);
  if (shortage.binding != Binding::device && need.device > problem.device_budget) {
    all.push_back({Binding::device, need.device, problem.device_budget});
  }
  if (shortage.binding != Binding::host && need.host_node > problem.host_budget) {
    all.push_back({Binding::host, need.host_node, problem.host_budget});
  }
  return all;
}

std::optional<Strategy> any_fit(const Problem& problem, const Pins& pins,
                                const std::function<bool(const Strategy&)>& worth) {
  for (const Strategy& strategy : lightest_strategies(problem, pins)) {
    if (!check(problem, strategy).empty() || (worth && !worth(strategy))) continue;
    if (!pins.strategy && !may_fit(problem, with_stored(problem, strategy, {}))) continue;
    const Strategy light = lightest(problem, pins, strategy);
    if (within(problem, usage(problem, light))) return light;
    if (pins.strategy) continue;
    const Strategy resident = lightest(problem, pins, resident_keys(problem, strategy));
    if (within(problem, usage(problem, resident))) return resident;
  }
  return std::nullopt;
}

Strategy roomy(const Problem& problem, Strategy strategy) {
  strategy.layer_gradients = LayerGradients::in_inputs;
  strategy.queries = Queries::again;
  return canonical(problem, strategy);
}

Strategy resident_keys(const Problem& problem, Strategy strategy) {
  strategy = with_kept(strategy, TensorClass::kv, 1);
  strategy = with_kept(strategy, TensorClass::dkv, 1);
  strategy.tiles.long_tiles = true;
  return canonical(problem, strategy);
}

}  // namespace fpdt
