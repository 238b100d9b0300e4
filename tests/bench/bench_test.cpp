// A quick bench gives every rate that a step needs. How fast the machine is, no test says.
#include "fpdt/bench/bench.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cost/machine.h"

namespace fpdt {
namespace {

ClusterSpec cluster_of(const BenchResult& result, std::int64_t ranks) {
  ClusterSpec cluster;
  cluster.name = "here";
  cluster.devices_per_node = ranks;
  cluster.device_memory = cluster.host_memory = Bytes{1 << 30};
  cluster.rates = result.rates;
  cluster.source = "measured";
  return cluster;
}

class Bench : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Bench, testing::Values(1, 2, 3));

TEST_P(Bench, GivesEveryRateOfAStep) {
  std::vector<std::string> told;
  BenchOptions options;
  options.ranks = GetParam();
  options.quick = true;
  options.progress = [&told](std::string_view what) { told.emplace_back(what); };
  const BenchResult result = bench(options);
  const ClusterSpec cluster = cluster_of(result, GetParam());
  EXPECT_TRUE(check(cluster).empty()) << format_diagnostics(check(cluster));
  EXPECT_TRUE(has_rates(cluster));
  EXPECT_FALSE(result.rates.matmul_shares.empty());
  EXPECT_FALSE(result.rates.attention_shares.empty());
  EXPECT_GT(result.rates.peak_flops, 0);
  EXPECT_GT(result.rates.op_seconds.typical, 0);
  EXPECT_EQ(result.rates.collective_seconds.typical > 0, GetParam() > 1);
  EXPECT_FALSE(told.empty());
  for (const Measurement& one : result.measurements) {
    EXPECT_GT(one.seconds.low, 0) << one.kind << " " << one.what;
    EXPECT_GT(one.bytes, 0) << one.kind << " " << one.what;
  }
  const auto measured = [&](std::string_view kind) {
    return std::any_of(result.measurements.begin(), result.measurements.end(),
                       [kind](const Measurement& one) { return one.kind == kind; });
  };
  for (const char* kind : {"matmul", "attention_forward", "attention_backward", "adamw", "h2d"}) {
    EXPECT_TRUE(measured(kind)) << kind;
  }
  EXPECT_EQ(measured("all_to_all"), GetParam() > 1);
}

}  // namespace
}  // namespace fpdt
