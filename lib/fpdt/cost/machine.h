// The machine as a clock: how long an op runs alone, and how much others slow it down.
//
// One rank stands for all: every device does the same work at the same time, so shared resources
// (a PCIe switch, the memory of a NUMA node, the NICs of a node) are divided equally. A Machine
// takes one end of the ranges of a cluster's rates, or their typical values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/cost/demand.h"
#include "fpdt/spec/cluster.h"

namespace fpdt {

// slow: every rate at its low end and every fixed time at its high end; fast: the other way round.
enum class RateEnd : std::uint8_t { slow, typical, fast };
std::string_view word(RateEnd which);

class Machine {
 public:
  // Throws InputError that names the missing rates, if the cluster lacks one that every step needs.
  // Files made by hand may lack rates; they can then be planned for bytes only. Precondition:
  // check(cluster) finds nothing.
  Machine(const ClusterSpec& cluster, RateEnd which);

  // Picoseconds of an op that runs alone; at least 1. InputError above 100 days.
  [[nodiscard]] std::int64_t picoseconds(const Demand& demand) const;
  // Seconds of an op that runs alone, for amounts of any size.
  [[nodiscard]] double seconds(const Demand& demand) const;

  // Progress of a lane of `kind` while lanes of the kinds in `active` run (bit k: LaneKind k; the
  // lane's own bit is ignored). kFullPace is the pace of running alone.
  [[nodiscard]] std::int64_t pace(LaneKind kind, unsigned active) const {
    return pace_[static_cast<std::size_t>(kind)][active & 15U];
  }

 private:
  // Points (logarithm of the size, share).
  using Shares = std::vector<std::pair<double, double>>;

  [[nodiscard]] double product_seconds(const Demand& demand, double arithmetic) const;
  // The rates of attention tiles, either forward or backward.
  struct Tiles {
    double rate, softmax, own;  // own: the rate of the backend's own kernels, softmax included
    Shares heads, own_heads;
  };

  [[nodiscard]] double attention_seconds(const Demand& demand, const Tiles& tiles) const;
  [[nodiscard]] double collective_seconds(const Demand& demand) const;

  std::int64_t devices_per_node_;
  double matmul_, grouped_;
  Tiles forward_, backward_;
  std::array<double, kBodies> bandwidth_{};  // by kind
  double h2d_, d2h_, link_, network_;
  double own_network_;  // of one device

  double op_seconds_, peer_seconds_, remote_seconds_;
  Shares matmul_shares_, attention_shares_, network_shares_;
  std::array<std::array<std::int64_t, 16>, 4> pace_{};
};

inline constexpr std::int64_t kFullPace = 1024;

}  // namespace fpdt
