// Seconds of one op against numbers worked out by hand, on a machine with round rates.
#include "fpdt/cost/machine.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000'000;  // in picoseconds
// Sums of doubles that are not binary fractions may end just above an integer, and times round up.
void expect_close(std::int64_t found, std::int64_t expected) {
  constexpr std::int64_t kRounding = 2;
  EXPECT_LE(std::abs(found - expected), kRounding) << found << " is not " << expected;
}

Rate exactly(double value) { return {value, value, value}; }

// 2 nodes of 4 devices.
ClusterSpec round_cluster() {
  ClusterSpec cluster;
  cluster.name = "round";
  cluster.nodes = 2;
  cluster.devices_per_node = 4;
  Rates& rates = cluster.rates;
  rates.matmul = exactly(200e12);
  rates.attention_forward = exactly(100e12);
  rates.attention_backward = exactly(50e12);
  rates.device_bandwidth = exactly(1e12);
  rates.h2d = exactly(20e9);
  rates.d2h = exactly(10e9);
  rates.link = exactly(100e9);
  rates.network = exactly(40e9);
  return cluster;
}

std::int64_t kind_of(std::string_view name) {
  return std::find(kBodyNames.begin(), kBodyNames.end(), name) - kBodyNames.begin();
}

Demand asks(Work work, double flops, std::int64_t bytes, std::string_view kind = "matmul") {
  Demand demand;
  demand.work = work;
  demand.kind = static_cast<std::int32_t>(kind_of(kind));
  demand.flops = flops;
  demand.bytes = bytes;
  demand.size = 1 << 20;
  return demand;
}

Demand sends(std::int64_t bytes, std::int64_t group, std::int64_t stride, bool ring) {
  Demand demand;
  demand.work = Work::collective;
  demand.kind = static_cast<std::int32_t>(kind_of(ring ? "all_gather" : "all_to_all"));
  demand.sent = bytes;
  demand.group = group;
  demand.stride = stride;
  demand.ring = ring;
  return demand;
}

std::int64_t time_of(const ClusterSpec& cluster, const Demand& demand) {
  return Machine(cluster, RateEnd::typical).picoseconds(demand);
}

TEST(Machine, DividesAmountsByRates) {
  const ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, asks(Work::matmul, 200e12, 1)), kSecond);
  EXPECT_EQ(time_of(cluster, asks(Work::attention_forward, 200e12, 1)), 2 * kSecond);
  EXPECT_EQ(time_of(cluster, asks(Work::attention_backward, 200e12, 1)), 4 * kSecond);
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 1'000'000'000)), kSecond / 1000);
  EXPECT_EQ(time_of(cluster, asks(Work::h2d, 0, 20'000'000)), kSecond / 1000);
  EXPECT_EQ(time_of(cluster, asks(Work::d2h, 0, 20'000'000)), kSecond / 500);
}

TEST(Machine, ProductsAreBoundByArithmeticOrByMemory) {
  const ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, asks(Work::matmul, 200e12, 3'000'000'000'000)), 3 * kSecond);
}

// The bytes of partial results are never hidden by arithmetic.
TEST(Machine, PartialResultsComeOnTop) {
  const ClusterSpec cluster = round_cluster();
  for (const Work work : {Work::matmul, Work::attention_forward, Work::attention_backward}) {
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{30'000'000'000'000}}) {
      Demand demand = asks(work, 200e12, bytes);
      const std::int64_t before = time_of(cluster, demand);
      demand.partial = 1'000'000'000'000;
      EXPECT_EQ(time_of(cluster, demand), before + kSecond);
    }
  }
}

TEST(Machine, RoundsUpToAtLeastOnePicosecond) {
  const ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 0)), 1);
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 1)), 1);
  EXPECT_EQ(time_of(cluster, asks(Work::matmul, 201, 0)), 2);
}

TEST(Machine, EveryOpTakesItsFixedTime) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.op_seconds = exactly(1e-6);
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 0)), 1'000'000);
  EXPECT_EQ(time_of(cluster, asks(Work::matmul, 200e6, 0)), 2'000'000);
}

TEST(Machine, AKindMayHaveABandwidthOfItsOwn) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.kinds = {{"norm", exactly(0.5e12)}};
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 1'000'000'000, "norm")), kSecond / 500);
  EXPECT_EQ(time_of(cluster, asks(Work::memory, 0, 1'000'000'000, "fill")), kSecond / 1000);
  cluster.rates.kinds = {{"nrom", exactly(1)}};
  EXPECT_THROW(Machine(cluster, RateEnd::typical), InputError);
}

// Rates are linear in the logarithm between points: 4096 is half way from 1024 to 16384.
TEST(Machine, SmallProductsReachAShareOfTheRate) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.matmul_shares = {{1024, 0.5}, {16384, 1}};
  cluster.rates.attention_shares = {{64, 0.25}};
  const auto time = [&](Work work, std::int64_t size) {
    Demand demand = asks(work, 30e12, 0);
    demand.size = size;
    return time_of(cluster, demand);
  };
  expect_close(time(Work::matmul, 1), 3 * kSecond / 10);
  expect_close(time(Work::matmul, 1024), 3 * kSecond / 10);
  expect_close(time(Work::matmul, 4096), 2 * kSecond / 10);
  expect_close(time(Work::matmul, 16384), 15 * kSecond / 100);
  expect_close(time(Work::matmul, 1 << 20), 15 * kSecond / 100);
  expect_close(time(Work::attention_forward, 4096), 12 * kSecond / 10);
}

// 30 Tflop at 100 Tflop/s, and 1e12 pairs at 5e12 a second.
TEST(Machine, SoftmaxAddsToTheProductsOfAttention) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.softmax_forward = exactly(5e12);
  Demand demand = asks(Work::attention_forward, 30e12, 0);
  demand.pairs = 1e12;
  expect_close(time_of(cluster, demand), 5 * kSecond / 10);
  demand.work = Work::attention_backward;
  expect_close(time_of(cluster, demand), 6 * kSecond / 10);
  cluster.rates.softmax_backward = exactly(2.5e12);
  expect_close(time_of(cluster, demand), kSecond);
}

// 30 Tflop at 100 and 50 Tflop/s of cuDNN, and at 20 and 10 of the kernels that take what it does
// not.
TEST(Machine, TilesThatALibraryDoesNotTakeHaveTheirOwnRate) {
  ClusterSpec cluster = round_cluster();
  cluster.attention = AttentionKernels::cudnn;
  cluster.rates.softmax_forward = exactly(5e12);
  cluster.rates.own_attention_forward = exactly(20e12);
  cluster.rates.own_attention_backward = exactly(10e12);
  Demand tile = asks(Work::attention_forward, 30e12, 0);
  expect_close(time_of(cluster, tile), 3 * kSecond / 10);
  tile.pairs = 1e12;
  tile.masked = tile.pairs / 2;
  expect_close(time_of(cluster, tile), 75 * kSecond / 100);
  tile.masked = 0;
  tile.own = true;
  expect_close(time_of(cluster, tile), 15 * kSecond / 10);
  tile.masked = tile.pairs / 3;
  expect_close(time_of(cluster, tile), 2 * kSecond);
  tile.masked = 0;
  tile.work = Work::attention_backward;
  expect_close(time_of(cluster, tile), 3 * kSecond);
  cluster.rates.own_attention_heads = {{128, 1}, {256, 0.5}};
  tile.head_dim = 256;
  expect_close(time_of(cluster, tile), 6 * kSecond);
  cluster.rates.own_attention_heads_backward = {{128, 1}, {256, 0.25}};
  expect_close(time_of(cluster, tile), 12 * kSecond);
  cluster.rates.own_attention_backward = {};
  expect_close(time_of(cluster, tile), 6 * kSecond / 10);
  cluster.attention = AttentionKernels::own;  // then all rates are those of its own kernels
  tile.work = Work::attention_forward;
  expect_close(time_of(cluster, tile), 5 * kSecond / 10);
}

TEST(Machine, ProductsOfExpertsHaveTheirOwnRate) {
  ClusterSpec cluster = round_cluster();
  Demand product = asks(Work::matmul, 30e12, 0);
  const std::int64_t usual = time_of(cluster, product);
  product.own = true;
  EXPECT_EQ(time_of(cluster, product), usual) << "where it is not known";
  cluster.rates.grouped_matmul = exactly(10e12);
  expect_close(time_of(cluster, product), 3 * kSecond);
  product.own = false;
  EXPECT_EQ(time_of(cluster, product), usual);
}

// Four devices on two NUMA nodes of 25 GB/s: a device has 12.5 of them. Both directions together
// ask for 12.5 + 10, so each runs at 12.5 / 22.5 of its pace.
TEST(Machine, DevicesShareTheMemoryOfTheHost) {
  ClusterSpec cluster = round_cluster();
  cluster.numa_nodes = 2;
  cluster.rates.host_bandwidth = exactly(25e9);
  const Machine machine(cluster, RateEnd::typical);
  expect_close(machine.picoseconds(asks(Work::h2d, 0, 25'000'000'000, "copy")), 2 * kSecond);
  expect_close(machine.picoseconds(asks(Work::d2h, 0, 10'000'000'000, "copy")), kSecond);
  constexpr unsigned kBoth =
      1U << static_cast<unsigned>(LaneKind::h2d) | 1U << static_cast<unsigned>(LaneKind::d2h);
  EXPECT_EQ(machine.pace(LaneKind::h2d, kBoth), 569);  // 1024 * 12.5 / 22.5
  EXPECT_EQ(machine.pace(LaneKind::d2h, kBoth), 569);
  // A lone device has the node to itself.
  cluster = with_devices(cluster, 1);
  const Machine alone(cluster, RateEnd::typical);
  expect_close(alone.picoseconds(asks(Work::h2d, 0, 20'000'000'000, "copy")), kSecond);
  EXPECT_EQ(alone.pace(LaneKind::h2d, kBoth), 853);  // 1024 * 25 / 30
}

TEST(Machine, SmallHeadsReachAShareOfTheAttentionRates) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.attention_heads = {{64, 0.5}, {128, 1}};
  const Machine machine(cluster, RateEnd::typical);
  Demand tile = asks(Work::attention_forward, 100e12, 0, "attention_forward");
  tile.head_dim = 128;
  expect_close(machine.picoseconds(tile), kSecond);
  tile.head_dim = 64;
  expect_close(machine.picoseconds(tile), 2 * kSecond);
  tile.work = Work::attention_backward;
  const std::int64_t same = machine.picoseconds(tile);
  cluster.rates.attention_heads_backward = {{64, 0.25}, {128, 1}};
  expect_close(time_of(cluster, tile), 2 * same);
  tile.work = Work::attention_forward;
  expect_close(time_of(cluster, tile), 2 * kSecond);
}

// Two devices share a switch of 25 GB/s. Each gets 12.5: less than 20 (h2d), more than 10 (d2h).
TEST(Machine, DevicesShareTheirSwitch) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.switch_bandwidth = exactly(25e9);
  cluster.rates.devices_per_switch = 2;
  EXPECT_EQ(time_of(cluster, asks(Work::h2d, 0, 12'500'000)), kSecond / 1000);
  EXPECT_EQ(time_of(cluster, asks(Work::d2h, 0, 10'000'000)), kSecond / 1000);
  cluster.nodes = 1;
  cluster.devices_per_node = 1;  // no other device shares it
  EXPECT_EQ(time_of(cluster, asks(Work::h2d, 0, 20'000'000)), kSecond / 1000);
}

TEST(Machine, CollectivesOfANodeTakeItsLinks) {
  const ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, sends(100'000'000, 4, 1, false)), kSecond / 1000);
  EXPECT_EQ(time_of(cluster, sends(100'000'000, 4, 1, true)), kSecond / 1000);
  EXPECT_EQ(time_of(cluster, sends(100'000'000, 2, 2, false)), kSecond / 1000);
}

// Over both nodes each of 4 devices sends 4/7 of its 70 MB out: 160 MB through 40 GB/s.
TEST(Machine, AnAllToAllOverNodesSharesTheirNetwork) {
  const ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, sends(70'000'000, 8, 1, false)), 4 * kSecond / 1000);
}

// A ring leaves the node once: 70 MB through 40 GB/s take 1.75 ms, more than through the links.
TEST(Machine, ARingLeavesEachNodeOnce) {
  ClusterSpec cluster = round_cluster();
  EXPECT_EQ(time_of(cluster, sends(70'000'000, 8, 1, true)), 1750 * kSecond / 1'000'000);
  cluster.rates.network = exactly(1e12);
  EXPECT_EQ(time_of(cluster, sends(70'000'000, 8, 1, true)), 700 * kSecond / 1'000'000);
}

// An exchange sends once, whatever the size of the group: 70 MB of eight ranks through 40 GB/s when
// one rank of a node, or each of them, sends to the other node.
TEST(Machine, AnExchangeLeavesTheNodeByItsHop) {
  ClusterSpec cluster = round_cluster();
  Demand demand = sends(70'000'000, 8, 1, false);
  for (const auto& [hop, times] : {std::pair{1, 1}, {7, 1}, {2, 2}, {4, 4}, {5, 3}}) {
    demand.hop = hop;
    EXPECT_EQ(time_of(cluster, demand), times * 1750 * kSecond / 1'000'000) << hop;
  }
  cluster.rates.collective_seconds = exactly(1e-3);
  demand.hop = 1;
  EXPECT_EQ(time_of(cluster, demand), 2750 * kSecond / 1'000'000);
}

// A device uses a NIC of its own: one of four that sends 70 MB through 10 GB/s takes 7 ms, as four
// of them do.
TEST(Machine, ADeviceUsesItsPartOfTheNics) {
  ClusterSpec cluster = round_cluster();
  Demand demand = sends(70'000'000, 8, 1, false);
  EXPECT_EQ(time_of(cluster, demand), 4 * kSecond / 1000);
  for (const std::int64_t nics : {4, 8}) {
    cluster.rates.nics = nics;
    demand.hop = 0;
    EXPECT_EQ(time_of(cluster, demand), 4 * kSecond / 1000);
    for (const std::int64_t hop : {1, 4}) {
      demand.hop = hop;
      EXPECT_EQ(time_of(cluster, demand), 7 * kSecond / 1000) << nics;
    }
  }
  cluster.rates.nics = 2;  // half of the network for one, which four share
  demand.hop = 1;
  EXPECT_EQ(time_of(cluster, demand), 3500 * kSecond / 1'000'000);
}

// 1 MB to each of seven peers reaches half of the network, and ten times as much all of it.
TEST(Machine, SmallMessagesReachAShareOfTheNetwork) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.network_shares = {{1'000'000, 0.5}, {10'000'000, 1}};
  EXPECT_EQ(time_of(cluster, sends(7'000'000, 8, 1, false)), 800 * kSecond / 1'000'000);
  EXPECT_EQ(time_of(cluster, sends(70'000'000, 8, 1, false)), 4 * kSecond / 1000);
  EXPECT_EQ(time_of(cluster, sends(1'000'000, 4, 1, false)), 10 * kSecond / 1'000'000) << "links";
}

// Three peers on the node and four on the other.
TEST(Machine, PeersOnOtherNodesTakeATimeOfTheirOwn) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.collective_seconds = exactly(1e-6);
  expect_close(time_of(cluster, sends(0, 8, 1, false)), 7'000'000);
  cluster.rates.network_seconds = exactly(5e-6);
  expect_close(time_of(cluster, sends(0, 8, 1, false)), 23'000'000);
  expect_close(time_of(cluster, sends(0, 2, 4, false)), 5'000'000);
}

// Each node has one rank of each of four groups, so all their data leaves the node.
TEST(Machine, StridedGroupsMeetAcrossNodes) {
  const ClusterSpec cluster = round_cluster();
  for (const bool ring : {false, true}) {
    EXPECT_EQ(time_of(cluster, sends(10'000'000, 2, 4, ring)), kSecond / 1000);
  }
}

// Groups of 4 on nodes of 6: some have two ranks on each of two nodes, and the slowest group
// counts.
TEST(Machine, GroupsThatCrossNodesUnevenlyTakeTheLongerWay) {
  ClusterSpec cluster = round_cluster();
  cluster.devices_per_node = 6;
  // 2/3 of 20 MB leave each of 6 devices: 80 MB through 40 GB/s.
  EXPECT_EQ(time_of(cluster, sends(20'000'000, 4, 1, false)), kSecond / 500);
}

TEST(Machine, CollectivesTakeAFixedTimeForEachPeer) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.collective_seconds = exactly(1e-6);
  cluster.rates.op_seconds = exactly(5e-6);
  expect_close(time_of(cluster, sends(0, 4, 1, false)), 8'000'000);
}

TEST(Machine, PacesAreProductsOfWhatRunsBeside) {
  ClusterSpec cluster = round_cluster();
  Interference& factors = cluster.rates.interference;
  factors.compute_beside_copy = exactly(0.5);
  factors.compute_beside_collective = exactly(0.25);
  factors.copy_beside_compute = exactly(0.75);
  factors.h2d_beside_d2h = exactly(0.5);
  factors.copy_beside_collective = exactly(0.875);
  factors.collective_beside_compute = exactly(0.125);
  const Machine machine(cluster, RateEnd::typical);
  constexpr unsigned kCompute = 1, kIn = 2, kOut = 4, kComm = 8;
  EXPECT_EQ(machine.pace(LaneKind::compute, 0), kFullPace);
  EXPECT_EQ(machine.pace(LaneKind::compute, kCompute), kFullPace);
  EXPECT_EQ(machine.pace(LaneKind::compute, kCompute | kIn), 512);
  EXPECT_EQ(machine.pace(LaneKind::compute, kIn | kOut | kComm), 64);
  EXPECT_EQ(machine.pace(LaneKind::h2d, kIn | kOut), 512);
  EXPECT_EQ(machine.pace(LaneKind::d2h, kIn | kOut), kFullPace);
  EXPECT_EQ(machine.pace(LaneKind::d2h, kCompute | kComm), 672);  // 0.75 * 0.875
  EXPECT_EQ(machine.pace(LaneKind::comm, kCompute | kIn), 128);
}

TEST(Machine, SlowIsNeverFasterThanFast) {
  ClusterSpec cluster = round_cluster();
  Rates& rates = cluster.rates;
  for (Rate* rate : {&rates.matmul, &rates.attention_forward, &rates.attention_backward,
                     &rates.device_bandwidth, &rates.h2d, &rates.d2h, &rates.link, &rates.network,
                     &rates.op_seconds, &rates.collective_seconds}) {
    *rate = {rate->typical, 0.5 * rate->typical, 2 * rate->typical};
  }
  rates.op_seconds = {2e-6, 1e-6, 4e-6};
  rates.interference.compute_beside_copy = {0.8, 0.6, 1};
  const Machine slow(cluster, RateEnd::slow);
  const Machine typical(cluster, RateEnd::typical);
  const Machine fast(cluster, RateEnd::fast);
  for (const Demand& demand :
       {asks(Work::matmul, 1e12, 0), asks(Work::attention_forward, 1e12, 0),
        asks(Work::attention_backward, 1e12, 0), asks(Work::memory, 0, 1 << 30),
        asks(Work::h2d, 0, 1 << 30), asks(Work::d2h, 0, 1 << 30), sends(1 << 30, 4, 1, false),
        sends(1 << 30, 8, 1, true)}) {
    expect_close(slow.picoseconds(demand), 2 * typical.picoseconds(demand));
    EXPECT_LT(fast.picoseconds(demand), typical.picoseconds(demand));
  }
  EXPECT_LT(slow.pace(LaneKind::compute, 2), typical.pace(LaneKind::compute, 2));
  EXPECT_LT(typical.pace(LaneKind::compute, 2), fast.pace(LaneKind::compute, 2));
}

TEST(Machine, RefusesOpsOfYears) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.d2h = exactly(1e-3);
  Demand demand;
  demand.work = Work::d2h;
  demand.bytes = 1 << 30;
  EXPECT_THROW(static_cast<void>(Machine(cluster, RateEnd::typical).picoseconds(demand)),
               InputError);
}

TEST(Machine, NamesTheRatesThatAreMissing) {
  ClusterSpec cluster = round_cluster();
  cluster.rates.matmul = cluster.rates.network = {};
  const auto refusal = [&]() -> std::string {
    try {
      const Machine machine(cluster, RateEnd::typical);
      return "none";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  EXPECT_NE(refusal().find("missing: peak_flops, matmul, network;"), std::string::npos)
      << refusal();
  cluster.rates.peak_flops = 250e12;
  EXPECT_NE(refusal().find("missing: matmul, network;"), std::string::npos) << refusal();
  cluster.rates.matmul = exactly(1);
  cluster.nodes = 1;
  EXPECT_NO_THROW(Machine(cluster, {}));
}

}  // namespace
}  // namespace fpdt
