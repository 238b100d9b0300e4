// The formula of segments and thresholds against the bytes of all of them.
#include "fpdt/plan/search/policies.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/search/floor.h"
#include "fpdt/spec/edits.h"

#include "problems.h"

namespace fpdt::test {
namespace {

struct PolicyCase {
  const char* name = "";
  std::int64_t tokens = 0, devices = 0;
  std::int64_t host_gib = 0;
  std::int64_t chunk_tokens = 0;
};

class FastPolicies : public testing::TestWithParam<PolicyCase> {};

// Any number of segments, each with the lengths that every eighth threshold needs.
std::int64_t fastest_of_all(const Problem& problem, const Strategy& shape, const Machine& machine) {
  const std::int64_t layers = problem.model.layers, most = thresholds(problem, shape);
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t count = 1; count <= layers; ++count) {
    for (std::int64_t threshold = 0; threshold <= most; threshold += 8) {
      const double share = static_cast<double>(threshold) / static_cast<double>(most);
      Strategy strategy = shape;
      strategy.segments = least_segments(layers, count, output_weights(problem, share)).lengths;
      strategy = with_stored_from(problem, strategy, {threshold, layers});
      if (!may_fit(problem, strategy)) continue;
      fastest = std::min(fastest, compute_floor(problem, strategy, machine));
      break;
    }
  }
  return fastest;
}

TEST_P(FastPolicies, AreAsFastAsAnyThatFits) {
  Problem problem = llama3_8b(GetParam().tokens);
  problem.cluster.devices_per_node = GetParam().devices;
  problem.host_budget = Bytes{GetParam().host_gib << 30};
  const Machine machine(problem.cluster, RateEnd::typical);
  Strategy shape = spilled(problem, 1, GetParam().chunk_tokens);
  shape.layer_gradients = LayerGradients::in_inputs;
  shape.offload_states(GetParam().devices == 1);
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  const auto first = first_policy(problem, shape, machine);
  for (const Policy& policy : fast_policies(problem, shape, machine, first)) {
    Strategy strategy = shape;
    strategy.segments = policy.segments;
    ASSERT_LE(policy.threshold, thresholds(problem, shape));
    strategy = with_stored_from(problem, strategy, {policy.threshold, problem.model.layers});
    EXPECT_TRUE(may_fit(problem, strategy));
    fastest = std::min(fastest, compute_floor(problem, strategy, machine));
  }
  EXPECT_LE(fastest, fastest_of_all(problem, shape, machine));
}

INSTANTIATE_TEST_SUITE_P(Budgets, FastPolicies,
                         testing::Values(PolicyCase{"NearlyAllStored", 1 << 20, 1, 464, 1 << 15},
                                         PolicyCase{"HalfStored", 1 << 20, 1, 300, 1 << 15},
                                         PolicyCase{"LittleStored", 1 << 20, 1, 200, 1 << 15},
                                         PolicyCase{"FourDevices", 1 << 23, 4, 1024, 1 << 17},
                                         PolicyCase{"AllStored", 1 << 21, 4, 1024, 1 << 16}),
                         [](const auto& which) { return std::string(which.param.name); });

}  // namespace
}  // namespace fpdt::test
