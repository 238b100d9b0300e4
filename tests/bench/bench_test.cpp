// A quick bench gives every rate that a step needs. No test checks how fast the machine is.
#include "fpdt/bench/bench.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
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

class Benches : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Benches, testing::Values(1, 2, 3));

TEST_P(Benches, GiveEveryRateOfAStep) {
  std::vector<std::string> told;
  BenchOptions options;
  options.ranks = GetParam();
  options.extent = cpu_extent(BenchLength::quick);
  options.progress = [&told](std::string_view what) { told.emplace_back(what); };
  const BenchResult result = bench(options);
  const ClusterSpec cluster = cluster_of(result, GetParam());
  EXPECT_TRUE(check(cluster).empty()) << format_diagnostics(check(cluster));
  EXPECT_NO_THROW(Machine(cluster, {}));
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
  EXPECT_EQ(result.outside, OutsideArena{});
}

TEST(Bench, GivesTheNetworkOfSeveralNodes) {
  BenchOptions options;
  options.ranks = 4;
  options.nodes = 2;
  options.extent = cpu_extent(BenchLength::quick);
  options.progress = [](std::string_view) {};
  const BenchResult result = bench(options);
  ClusterSpec cluster = cluster_of(result, 2);
  cluster.nodes = 2;
  EXPECT_TRUE(check(cluster).empty()) << format_diagnostics(check(cluster));
  const Rates& rates = result.rates;
  for (const Rate& rate :
       {rates.link, rates.collective_seconds, rates.network, rates.network_seconds}) {
    EXPECT_GT(rate.typical, 0);
  }
  EXPECT_GE(rates.nics, 1);
  EXPECT_LE(rates.nics, 2);
  double fastest = 0;
  for (const SizeShare& one : rates.network_shares) fastest = std::max(fastest, one.share);
  EXPECT_EQ(fastest, 1);
}

std::int64_t count(const BenchResult& result, std::string_view kind, std::string_view what) {
  return std::count_if(result.measurements.begin(), result.measurements.end(),
                       [&](const Measurement& one) {
                         return one.kind == kind && one.what.find(what) != std::string::npos;
                       });
}

// The measurements of a GPU's bench, on a CPU: tiles of a library and of the backend, copies of
// many sizes, and the driver's counts.
TEST(GpuBench, MeasuresTheSameWay) {
  constexpr std::int64_t kMebi = 1 << 20;
  constexpr std::int64_t kRanks = 2;
  BenchOptions options;
  options.ranks = kRanks;
  options.extent = gpu_extent(BenchLength::quick);
  options.attention = AttentionKernels::cudnn;
  options.largest_cudnn_head = 256;
  options.peak_flops = 1e15;
  options.machine.workspace = Bytes{48 * kMebi};
  options.machine.devices = 2;
  bool first = true;
  options.machine.used_memory = [&first] {
    return std::exchange(first, false) ? Bytes{500 * kMebi} : Bytes{1000 * kMebi};
  };
  std::string asked;
  options.progress = [&asked](std::string_view what) {
    if (asked.empty()) asked = what;
  };
  const BenchResult result = bench(options);
  // It is measured before anything loads code that training does not load.
  EXPECT_EQ(asked, "memory outside the arenas");
  const ClusterSpec cluster = cluster_of(result, kRanks);
  EXPECT_TRUE(check(cluster).empty()) << format_diagnostics(check(cluster));
  EXPECT_NO_THROW(Machine(cluster, {}));
  EXPECT_EQ(result.rates.peak_flops, 1e15);
  ASSERT_EQ(result.rates.attention_shares.size(), 2U);
  EXPECT_EQ(result.rates.attention_shares.back().size, 256);
  for (const char* kind : {"attention_forward", "attention_backward"}) {
    EXPECT_EQ(count(result, kind, "128 rows, D 128, library"), 3);  // to fit, diagonal and full
    EXPECT_EQ(count(result, kind, "256 rows, D 128, library"), 2);
    EXPECT_EQ(count(result, kind, "128 rows, D 64, library"), 1);
    EXPECT_EQ(count(result, kind, "128 rows, D 128"), 5);
    EXPECT_EQ(count(result, kind, "128 rows, D 256"), 2);  // of each kind of kernels
  }
  for (const auto& shares :
       {result.rates.attention_heads, result.rates.attention_heads_backward,
        result.rates.own_attention_heads, result.rates.own_attention_heads_backward}) {
    ASSERT_EQ(shares.size(), 2U);
    EXPECT_EQ(shares.back().size, 256);
    EXPECT_GT(shares.back().share, 0);
  }
  EXPECT_GT(result.rates.own_attention_forward.typical, 0);
  EXPECT_GT(result.rates.own_attention_backward.typical, 0);
  EXPECT_EQ(count(result, "h2d", ""), 2);
  EXPECT_EQ(count(result, "d2h", "1.00 MiB"), 1);
  // The context of one device, and a rank's share of the rest less the arenas, which are small
  // here.
  EXPECT_EQ(result.outside.context, Bytes{250 * kMebi});
  EXPECT_EQ(result.outside.workspace, Bytes{48 * kMebi});
  const Bytes rest = kRanks * (result.outside.libraries + result.outside.workspace);
  EXPECT_GE(rest, Bytes{450 * kMebi});
  EXPECT_LE(rest, Bytes{500 * kMebi} + kRanks * Bytes{64 * kMebi});
}

// Later measurements load code that training does not, so memory is measured in a fresh process.
TEST(GpuBench, MeasuresTheDevicesMemoryInAProcessThatHasRunNothingElse) {
  BenchOptions options;
  options.extent = gpu_extent(BenchLength::quick);
  options.attention = AttentionKernels::cudnn;
  std::int64_t calls = 0;
  options.machine.used_memory = [&calls] { return Bytes{(++calls * 300) << 20}; };
  options.progress = [](std::string_view) {};
  const BenchResult result = bench(options);
  EXPECT_GT(calls, 50);
  EXPECT_EQ(result.outside.context, Bytes{300 << 20});
  EXPECT_LE(result.outside.libraries, Bytes{320 << 20});
}

// Whenever it ends, it keeps what it has measured, and all other rates stay as declared.
TEST(Bench, KeepsWhatItHasAfterEachGroup) {
  Rates declared;
  declared.matmul = declared.attention_forward = declared.attention_backward = {7, 7, 7};
  declared.device_bandwidth = declared.h2d = declared.d2h = declared.network = {7, 7, 7};
  declared.kinds = {{"norm", {7, 7, 7}}};
  BenchOptions options;
  options.extent = cpu_extent(BenchLength::quick);
  options.declared = declared;
  options.progress = [](std::string_view) {};
  std::vector<std::string> groups;
  options.keep = [&](const BenchResult& result, const std::vector<std::string>& measured) {
    ASSERT_EQ(measured.size(), groups.size() + 1);
    groups.push_back(measured.back());
    EXPECT_EQ(measured, groups);
    const Rates& rates = result.rates;
    EXPECT_GT(rates.op_seconds.typical, 0);
    EXPECT_EQ(rates.kinds == declared.kinds, groups.size() < 2);
    EXPECT_EQ(rates.matmul == declared.matmul, groups.size() < 3);
    EXPECT_EQ(rates.attention_backward == declared.attention_backward, groups.size() < 4);
    EXPECT_EQ(rates.h2d == declared.h2d, groups.size() < 5);
    EXPECT_EQ(rates.network, declared.network);
  };
  bench(options);
  EXPECT_EQ(groups, (std::vector<std::string>{"op_seconds", "kinds", "products", "attention",
                                              "copies", "interference"}));
}

// On a GPU, most of a step is its largest product and tile: these run until clocks have settled.
TEST(Extents, TheLargestTakeLong) {
  for (const BenchLength length : {BenchLength::full, BenchLength::brief}) {
    const BenchExtent gpu = gpu_extent(length);
    EXPECT_GE(gpu.long_pace.step_seconds * gpu.long_pace.rounds, 1);
    EXPECT_EQ(gpu.product_sizes.back(), 16 << 10);
    EXPECT_EQ(gpu.tile_rows.back(), 64 << 10);
  }
  const BenchExtent brief = gpu_extent(BenchLength::brief);
  EXPECT_EQ(brief.product_sizes, (std::vector<std::int64_t>{4 << 10, 8 << 10, 16 << 10}));
  EXPECT_EQ(brief.tile_rows, (std::vector<std::int64_t>{8 << 10, 32 << 10, 64 << 10}));
  EXPECT_EQ(brief.others_rows, (std::vector<std::int64_t>{8 << 10}));
  for (const BenchExtent& extent : {brief, cpu_extent(BenchLength::brief)}) {
    EXPECT_TRUE(std::count(extent.copy_sizes.begin(), extent.copy_sizes.end(), extent.copy_bytes));
  }
}

TEST(Ceiling, IsThePeakOrTheDevicesOwnCopy) {
  BenchResult result;
  result.rates.peak_flops = 1e12;
  result.rates.device_bandwidth = {2e9, 1e9, 3e9};
  const Rate second{1, 1, 1};
  EXPECT_DOUBLE_EQ(
      share_of_ceiling(result, {"matmul", "", second, Work::matmul, 5e11, 4'000'000'000}), 0.5);
  EXPECT_DOUBLE_EQ(share_of_ceiling(result, {"norm", "", second, Work::memory, 0, 1'000'000'000}),
                   0.5);
  EXPECT_EQ(share_of_ceiling(result, {"h2d", "", second, Work::h2d, 0, 1'000'000'000}), 0);
}

}  // namespace
}  // namespace fpdt
