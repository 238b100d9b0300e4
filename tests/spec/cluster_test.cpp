// Contradictory clusters, and the same machines in another number.
#include "fpdt/spec/cluster.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

ClusterSpec four(std::int64_t nodes) {
  ClusterSpec cluster;
  cluster.name = "a100-80g-x" + std::to_string(4 * nodes);
  cluster.nodes = nodes;
  cluster.devices_per_node = 4;
  cluster.device_memory = (1 << 30) * Bytes{80};
  cluster.host_memory = (1 << 30) * Bytes{1024};
  cluster.outside = {Bytes{500}, Bytes{60}, Bytes{10}, Bytes{30}, Bytes{2}};
  cluster.host_outside = {Bytes{700}, Bytes{50}, Bytes{20}, Bytes{4}};
  cluster.rates.peak_flops = 300;
  cluster.rates.matmul = {200, 150, 250};
  cluster.rates.network = {20, 10, 25};
  cluster.rates.matmul_shares = {{128, 0.5}, {1024, 1}};
  cluster.rates.kinds = {{"norm", {3, 2, 4}}};
  return cluster;
}

std::string refusal(const ClusterSpec& cluster, std::int64_t devices) {
  try {
    static_cast<void>(with_devices(cluster, devices));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(WithDevices, TakesPartOfANodeOrWholeNodes) {
  const ClusterSpec two = with_devices(four(1), 2);
  EXPECT_EQ(two.nodes, 1);
  EXPECT_EQ(two.devices_per_node, 2);
  EXPECT_EQ(two.host_memory, four(1).host_memory);
  EXPECT_EQ(two.name, "a100-80g-x2");
  EXPECT_EQ(with_devices(four(1), 32), four(8));
  EXPECT_EQ(with_devices(four(8), 4), four(1));
  EXPECT_EQ(with_devices(four(8), 3).nodes, 1);
  EXPECT_EQ(with_devices(four(2), 8), four(2));
}

TEST(WithDevices, KeepsNamesReadable) {
  ClusterSpec cluster = four(1);
  for (const auto& [name, expected] :
       {std::pair("cpu-local", "cpu-local-x8"), std::pair("x4", "x4-x8"),
        std::pair("h200-141g-x1", "h200-141g-x8"), std::pair("a-x4-n8", "a-x4-n8-x8"),
        std::pair("box-4", "box-4-x8")}) {
    cluster.name = name;
    EXPECT_EQ(with_devices(cluster, 8).name, expected);
  }
}

TEST(WithDevices, NamesTheNearestThatCanBe) {
  EXPECT_NE(refusal(four(1), 10).find("nearest are 8 and 12"), std::string::npos);
  EXPECT_NE(refusal(four(1), 5).find("nearest are 4 and 8"), std::string::npos);
  EXPECT_NE(refusal(four(1), 0).find("expected 1 to"), std::string::npos);
  EXPECT_NE(refusal(four(1), std::numeric_limits<std::int64_t>::max()).find("expected 1 to"),
            std::string::npos);
}

// Planning seconds over several nodes needs the rate between them; planning bytes does not.
TEST(WithDevices, NeedsANetworkForMoreNodes) {
  ClusterSpec cluster = four(1);
  cluster.rates.network = {};
  EXPECT_NE(refusal(cluster, 8).find("no network rate"), std::string::npos);
  EXPECT_EQ(refusal(cluster, 2), "");
  cluster.rates = {};
  EXPECT_EQ(with_devices(cluster, 8).nodes, 2);
}

// Of a communicator for collectives, and of the one for messages, which has a single channel.
TEST(Cluster, CountsWhatLiesOutsideTheArena) {
  EXPECT_EQ(four(1).outside_bytes(), Bytes{500 + 60 + 10 + 2 * 3 * 30});
  EXPECT_EQ(four(2).outside_bytes(), Bytes{500 + 60 + 10 + 2 * (3 * 30 + 2)});
  EXPECT_EQ(four(2).outside_bytes(1, 3), Bytes{500 + 60 + 10 + 30 + 3 * 2 + 3 * 30 + 2});
  ClusterSpec cluster = four(2);
  cluster.outside.per_peer = (1 << 20) * Bytes{384};
  cluster.outside.network = (1 << 20) * Bytes{640};
  EXPECT_EQ(cluster.outside_bytes(), Bytes{570} + (1 << 20) * Bytes{3 * 384 + 640 + 3 * 24 + 40});
}

TEST(Cluster, CountsWhatLiesOutsideOnAHost) {
  const ClusterSpec cluster = four(2);
  EXPECT_EQ(cluster.host_outside_bytes(), Bytes{700 + 50 + 4 * (20 + 4)});
  EXPECT_EQ(cluster.host_available() + cluster.host_outside_bytes(), cluster.host_memory);
}

// For each page of 4 KiB: 64 bytes to describe it, 64 for the rest of the system, 56 to map it.
TEST(Cluster, EstimatesWhatLiesOutside) {
  ClusterSpec cluster = four(1);
  cluster.attention = AttentionKernels::cudnn;
  const OutsideHost host = estimated_host_outside(cluster);
  constexpr std::int64_t kGibi = 1 << 30;
  EXPECT_EQ(host.system, Bytes{32 * kGibi});
  EXPECT_EQ(host.page_tables, Bytes{14 * kGibi});
  EXPECT_EQ(host.process, Bytes{2 * kGibi});
  EXPECT_GT(estimated_outside(cluster).context, Bytes{kGibi});
  cluster.attention = AttentionKernels::own;
  EXPECT_EQ(estimated_outside(cluster), OutsideArena{});
  cluster.host_memory = Bytes{7001};  // the smallest host has some left
  cluster.host_outside = estimated_host_outside(cluster);
  EXPECT_GT(cluster.host_available(), Bytes{0});
}

TEST(Cluster, RatesMayBeAbsent) {
  ClusterSpec cluster = four(2);
  EXPECT_TRUE(check(cluster).empty());
  cluster.rates = {};
  EXPECT_TRUE(check(cluster).empty());
}

struct WrongValue {
  const char* name;
  const char* code;
  std::function<void(ClusterSpec&)> break_it;
};

class WrongCluster : public ::testing::TestWithParam<WrongValue> {};

TEST_P(WrongCluster, IsRefused) {
  ClusterSpec cluster = four(2);
  GetParam().break_it(cluster);
  const std::vector<Diagnostic> findings = check(cluster);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().code, GetParam().code);
  EXPECT_EQ(findings.front().where, "cluster a100-80g-x8");
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Cluster, WrongCluster,
    ::testing::Values(
        WrongValue{"nodes", "C101", [](ClusterSpec& c) { c.nodes = 0; }},
        WrongValue{"devices", "C101", [](ClusterSpec& c) { c.devices_per_node = 1025; }},
        WrongValue{"numa_nodes", "C101", [](ClusterSpec& c) { c.numa_nodes = 0; }},
        WrongValue{"memory", "C101", [](ClusterSpec& c) { c.host_memory = Bytes{0}; }},
        WrongValue{"row_multiple", "C101", [](ClusterSpec& c) { c.row_multiple = 0; }},
        WrongValue{"rows_of_cudnn", "C101",
                   [](ClusterSpec& c) {
                     c.attention = AttentionKernels::cudnn;
                     c.row_multiple = 192;
                   }},
        WrongValue{"head", "C101", [](ClusterSpec& c) { c.largest_cudnn_head = 192; }},
        WrongValue{"peer", "C101", [](ClusterSpec& c) { c.outside.per_peer = Bytes{1LL << 40}; }},
        WrongValue{"network_memory", "C101",
                   [](ClusterSpec& c) { c.outside.network = Bytes{1LL << 33}; }},
        WrongValue{"host_outside", "C101",
                   [](ClusterSpec& c) { c.host_outside.system = c.host_memory; }},
        WrongValue{"peak", "C102", [](ClusterSpec& c) { c.rates.peak_flops = kNan; }},
        WrongValue{"no_peak", "C102", [](ClusterSpec& c) { c.rates.peak_flops = 0; }},
        WrongValue{"over_peak", "C102", [](ClusterSpec& c) { c.rates.peak_flops = 199; }},
        WrongValue{"low_over_typical", "C102",
                   [](ClusterSpec& c) {
                     c.rates.link = {1, 2, 3};
                   }},
        WrongValue{"typical_over_high", "C102",
                   [](ClusterSpec& c) {
                     c.rates.d2h = {3, 1, 2};
                   }},
        WrongValue{"no_number", "C102",
                   [](ClusterSpec& c) {
                     c.rates.h2d = {kNan, 1, 2};
                   }},
        WrongValue{"no_end", "C102",
                   [](ClusterSpec& c) {
                     c.rates.h2d = {1, 1, kInfinity};
                   }},
        WrongValue{"down_to_0", "C102",
                   [](ClusterSpec& c) {
                     c.rates.h2d = {1, 0, 2};
                   }},
        WrongValue{"negative_time", "C102",
                   [](ClusterSpec& c) {
                     c.rates.op_seconds = {0, -1, 2};
                   }},
        WrongValue{"switch", "C102", [](ClusterSpec& c) { c.rates.devices_per_switch = 0; }},
        WrongValue{"share_0", "C102",
                   [](ClusterSpec& c) {
                     c.rates.attention_shares = {{1, 0}};
                   }},
        WrongValue{"share_over_1", "C102",
                   [](ClusterSpec& c) {
                     c.rates.matmul_shares = {{1, 1.5}};
                   }},
        WrongValue{"shares_in_disorder", "C102",
                   [](ClusterSpec& c) {
                     c.rates.matmul_shares = {{2, 0.5}, {2, 1}};
                   }},
        WrongValue{"kind_without_rate", "C102",
                   [](ClusterSpec& c) {
                     c.rates.kinds = {{"norm", {}}};
                   }},
        WrongValue{"faster_beside_others", "C102",
                   [](ClusterSpec& c) {
                     c.rates.interference.h2d_beside_d2h = {1, 1, 1.5};
                   }},
        WrongValue{"standstill", "C102",
                   [](ClusterSpec& c) {
                     c.rates.interference.copy_beside_compute = {1, 0, 1};
                   }}),
    [](const auto& wrong) { return std::string(wrong.param.name); });

}  // namespace
}  // namespace fpdt
