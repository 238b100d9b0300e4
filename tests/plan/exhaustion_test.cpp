// The search against every residency of a model with six layers and a sequence of eight chunks.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/plan/few_tiles.h"
#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/plan/search/search.h"
#include "fpdt/spec/edits.h"

#include "problems.h"

namespace fpdt::test {
namespace {

constexpr std::int64_t kLayers = 6, kChunks = 8;

Problem six_layers(Bytes host_budget) {
  Problem problem = llama3_8b(std::int64_t{1} << 20);
  problem.model.layers = kLayers;
  problem.cluster.devices_per_node = 1;
  problem.host_budget = host_budget;
  return problem;
}

// What is stored of attention: in segments of every shape from every chunk on, and in segments of
// one also everything in some layers.
std::vector<Strategy> policies(const Problem& problem, const Strategy& base) {
  std::vector<Strategy> all;
  for (const std::vector<std::int64_t>& segments : segment_shapes(kLayers)) {
    Strategy strategy = base;
    strategy.segments = segments;
    strategy = with_stored(problem, strategy, {0, kLayers});
    for (std::int64_t chunk = 0; chunk < thresholds(problem, strategy); ++chunk) {
      for (std::int64_t layers = 1; layers <= kLayers; ++layers) {
        all.push_back(with_stored_from(problem, strategy, {chunk, layers}));
      }
    }
    all.push_back(with_stored(problem, strategy, {}));
    if (segments.front() > 1) continue;
    for (std::int64_t everything = 1; everything <= kLayers; ++everything) {
      for (std::int64_t attention = 0; attention <= kLayers - everything; ++attention) {
        all.push_back(with_stored(problem, strategy, {everything, attention}));
      }
    }
  }
  return all;
}

// Every policy, with and without the two tensors that may leave memory.
std::vector<Strategy> residencies(const Problem& problem, const Strategy& like) {
  std::vector<Strategy> all;
  for (const LayerGradients gradients : {LayerGradients::apart, LayerGradients::in_inputs}) {
    for (const Queries queries : {Queries::stored, Queries::again}) {
      Strategy base = like;
      base.layer_gradients = gradients;
      base.queries = queries;
      for (const Strategy& one : policies(problem, base)) {
        const Strategy strategy = canonical(problem, one);
        const bool known = std::find(all.begin(), all.end(), strategy) != all.end();
        if (!known && check(problem, strategy).empty()) all.push_back(strategy);
      }
    }
  }
  return all;
}

Strategy with_kept_chunks(const Strategy& strategy, std::int64_t inputs, std::int64_t outputs) {
  const Strategy kept = with_kept(strategy, TensorClass::layer_input, fraction_of(inputs, kChunks));
  return with_kept(kept, TensorClass::attention_output, fraction_of(outputs, kChunks));
}

// With any number of chunks of layer inputs on the device, and with the most of attention outputs
// that then fit there: what is on the device takes no copies.
std::vector<Strategy> divisions(const Problem& problem, const Strategy& strategy) {
  const auto on_device = [&](const Strategy& kept) {
    return usage(problem, kept).device <= problem.device_budget;
  };
  std::vector<Strategy> fit;
  for (std::int64_t inputs = 0; inputs <= kChunks; ++inputs) {
    std::int64_t outputs = kChunks;
    while (outputs >= 0 && !on_device(with_kept_chunks(strategy, inputs, outputs))) --outputs;
    if (outputs < 0) break;
    const Strategy kept = with_kept_chunks(strategy, inputs, outputs);
    if (fits(problem, kept)) fit.push_back(kept);
  }
  return fit;
}

TEST(Exhaustion, FindsNothingFaster) {
  std::size_t all = 0, fit = 0;
  for (const std::int64_t gibi : {40, 64, 80}) {
    const Problem problem = six_layers(Bytes{gibi << 30});
    Pins pins;
    pins.chunk_tokens = problem.seq_len / kChunks;
    const SearchResult found = search(problem, pins);
    ASSERT_TRUE(found.best) << gibi;
    const Machine machine(problem.cluster, RateEnd::typical);
    // Once for a lever, and once for headroom.
    const double least =
        (1 - 2 * SearchEffort{}.indifference) * static_cast<double>(found.best->nanoseconds);
    // Nearly the same is saved by placement on others.
    const Problem roomier = with_room(problem, placement_gain(problem, found.best->strategy));
    for (const Strategy& strategy : residencies(problem, found.best->strategy)) {
      ++all;
      if (static_cast<double>(compute_floor(problem, strategy, machine)) >= least) continue;
      for (const Strategy& divided : divisions(roomier, strategy)) {
        ++fit;
        const Strategy quick = with_few_loss_tiles(problem, divided);
        const auto step = static_cast<double>(step_nanoseconds(problem, quick, machine));
        if (step >= least) continue;
        EXPECT_FALSE(within(problem, usage(problem, divided, placement_of(problem, divided))))
            << gibi << " GiB: " << in_words(problem, divided);
      }
    }
  }
  EXPECT_GT(all, 1000U);
  EXPECT_GT(fit, 20U);
}

}  // namespace
}  // namespace fpdt::test
