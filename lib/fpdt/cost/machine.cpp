// Amounts divided by rates. Doubles are used within one op only; the result is an integer.
#include "fpdt/cost/machine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

double speed(const Rate& rate, RateEnd which) {
  if (which == RateEnd::slow) return rate.low;
  return which == RateEnd::fast ? rate.high : rate.typical;
}

// The rate of the backend's own kernels where the others are a library's; 0: they are not.
double own_speed(const ClusterSpec& cluster, const Rate& own, RateEnd which) {
  return cluster.attention == AttentionKernels::cudnn ? speed(own, which) : 0;
}

double fixed_time(const Rate& seconds, RateEnd which) {
  if (which == RateEnd::slow) return seconds.high;
  return which == RateEnd::fast ? seconds.low : seconds.typical;
}

// The bandwidth of a device to its NUMA node's memory while all devices copy; 0: no limit.
double host_memory_speed(const ClusterSpec& cluster, RateEnd which) {
  const std::int64_t sharing = div_ceil(cluster.devices_per_node, cluster.numa_nodes);
  return speed(cluster.rates.host_bandwidth, which) / static_cast<double>(sharing);
}

// The part of a node's NICs that one device may use.
double part_of_nics(const ClusterSpec& cluster) {
  const std::int64_t nics = cluster.rates.nics;
  if (nics == 0) return 1;
  return std::max(1 / static_cast<double>(nics), 1 / static_cast<double>(cluster.devices_per_node));
}

// The copy rate of one device while all devices behind its switch copy the same way.
double host_speed(const Rate& alone, const ClusterSpec& cluster, RateEnd which) {
  double own = speed(alone, which);
  if (const double memory = host_memory_speed(cluster, which); memory > 0) {
    own = std::min(own, memory);
  }
  const double shared = speed(cluster.rates.switch_bandwidth, which);
  if (!(shared > 0)) return own;
  const std::int64_t devices = std::min(cluster.rates.devices_per_switch, cluster.devices_per_node);
  return std::min(own, shared / static_cast<double>(devices));
}

std::vector<std::pair<double, double>> by_logarithm(const std::vector<SizeShare>& points) {
  std::vector<std::pair<double, double>> shares;
  for (const auto& [size, share] : points) {
    shares.emplace_back(std::log(static_cast<double>(size)), share);
  }
  return shares;
}

double share_at(const std::vector<std::pair<double, double>>& points, std::int64_t size) {
  if (points.empty()) return 1;
  const double x = std::log(static_cast<double>(std::max<std::int64_t>(size, 1)));
  if (x <= points.front().first) return points.front().second;
  if (x >= points.back().first) return points.back().second;
  const auto above = std::find_if(points.begin(), points.end(),
                                  [x](const auto& point) { return point.first >= x; });
  const auto below = above - 1;
  const double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

bool is_copy(LaneKind kind) { return kind == LaneKind::h2d || kind == LaneKind::d2h; }

// The factor by which one kind of lane slows another.
double beside(const Interference& factors, LaneKind one, LaneKind other, RateEnd which) {
  const auto chosen = [&]() -> const Rate& {
    if (one == LaneKind::compute) {
      return is_copy(other) ? factors.compute_beside_copy : factors.compute_beside_collective;
    }
    if (one == LaneKind::comm) {
      return is_copy(other) ? factors.collective_beside_copy : factors.collective_beside_compute;
    }
    if (other == LaneKind::compute) return factors.copy_beside_compute;
    if (other == LaneKind::comm) return factors.copy_beside_collective;
    return one == LaneKind::h2d ? factors.h2d_beside_d2h : factors.d2h_beside_h2d;
  };
  return speed(chosen(), which);
}

// `copies_together`: the pace of either direction of copies while both run, by the memory of the
// host.
std::array<std::array<std::int64_t, 16>, 4> paces(const Interference& factors, RateEnd which,
                                                  double copies_together) {
  std::array<std::array<std::int64_t, 16>, 4> table{};
  for (unsigned one = 0; one < 4; ++one) {
    for (unsigned active = 0; active < 16; ++active) {
      double pace = kFullPace;
      for (unsigned other = 0; other < 4; ++other) {
        if (other == one || (active >> other & 1U) == 0) continue;
        const auto kind = static_cast<LaneKind>(one), running = static_cast<LaneKind>(other);
        const double factor = beside(factors, kind, running, which);
        const bool both = is_copy(kind) && is_copy(running);
        pace *= both ? std::min(factor, copies_together) : factor;
      }
      table[one][active] = std::max<std::int64_t>(std::llround(pace), 1);
    }
  }
  return table;
}

}  // namespace

std::string_view word(RateEnd which) {
  constexpr std::array<std::string_view, 3> words{"slow", "typical", "fast"};
  return words[static_cast<std::size_t>(which)];
}

Machine::Machine(const ClusterSpec& cluster, RateEnd which)
    : devices_per_node_(cluster.devices_per_node),
      matmul_(speed(cluster.rates.matmul, which)),
      grouped_(cluster.rates.grouped_matmul.typical > 0 ? speed(cluster.rates.grouped_matmul, which)
                                                        : matmul_),
      forward_{speed(cluster.rates.attention_forward, which),
               speed(cluster.rates.softmax_forward, which),
               own_speed(cluster, cluster.rates.own_attention_forward, which),
               by_logarithm(cluster.rates.attention_heads),
               by_logarithm(cluster.rates.own_attention_heads)},
      backward_{speed(cluster.rates.attention_backward, which),
                speed(cluster.rates.softmax_backward, which),
                own_speed(cluster, cluster.rates.own_attention_backward, which),
                by_logarithm(cluster.rates.heads_backward()),
                by_logarithm(cluster.rates.own_heads_backward())},
      h2d_(host_speed(cluster.rates.h2d, cluster, which)),
      d2h_(host_speed(cluster.rates.d2h, cluster, which)),
      link_(speed(cluster.rates.link, which)),
      network_(speed(cluster.rates.network, which)),
      own_network_(network_ * part_of_nics(cluster)),
      op_seconds_(fixed_time(cluster.rates.op_seconds, which)),
      peer_seconds_(fixed_time(cluster.rates.collective_seconds, which)),
      remote_seconds_(fixed_time(cluster.rates.network_seconds, which)),
      matmul_shares_(by_logarithm(cluster.rates.matmul_shares)),
      attention_shares_(by_logarithm(cluster.rates.attention_shares)),
      network_shares_(by_logarithm(cluster.rates.network_shares)) {
  if (!(cluster.rates.network_seconds.typical > 0)) remote_seconds_ = peer_seconds_;
  std::vector<std::string_view> missing = missing_rates(cluster);
  if (!missing.empty()) {
    if (!(cluster.rates.peak_flops > 0)) missing.insert(missing.begin(), "peak_flops");
    throw InputError(
        fmt::format("cluster {} cannot be timed, these rates are missing: {}; `fpdt-run bench` "
                    "measures them, `fpdt-plan cluster new --like C` takes those of another",
                    cluster.name, fmt::join(missing, ", ")));
  }
  const double memory = host_memory_speed(cluster, which);
  pace_ = paces(cluster.rates.interference, which,
                memory > 0 ? std::min(1.0, memory / (h2d_ + d2h_)) : 1.0);
  bandwidth_.fill(speed(cluster.rates.device_bandwidth, which));
  for (const KindRate& one : cluster.rates.kinds) {
    const auto kind = std::find(kBodyNames.begin(), kBodyNames.end(), one.kind);
    if (kind == kBodyNames.end()) {
      throw InputError(
          fmt::format("cluster {}: no op is of the kind \"{}\"", cluster.name, one.kind));
    }
    bandwidth_[static_cast<std::size_t>(kind - kBodyNames.begin())] =
        speed(one.bytes_per_second, which);
  }
}

std::int64_t Machine::picoseconds(const Demand& demand) const {
  const double picoseconds = std::ceil(seconds(demand) * 1e12);
  if (!(picoseconds < 9e18)) {
    throw InputError("an op of the step takes more than 100 days at the rates of the cluster");
  }
  return std::max<std::int64_t>(static_cast<std::int64_t>(picoseconds), 1);
}

double Machine::seconds(const Demand& demand) const {
  const auto bytes = static_cast<double>(demand.bytes);
  double seconds = 0;
  switch (demand.work) {
    case Work::matmul:
      seconds = product_seconds(demand, demand.flops / ((demand.own ? grouped_ : matmul_) *
                                                        share_at(matmul_shares_, demand.size)));
      break;
    case Work::attention_forward:
      seconds = attention_seconds(demand, forward_);
      break;
    case Work::attention_backward:
      seconds = attention_seconds(demand, backward_);
      break;
    case Work::memory:
      seconds = bytes / bandwidth_[static_cast<std::size_t>(demand.kind)];
      break;
    case Work::h2d:
      seconds = bytes / h2d_;
      break;
    case Work::d2h:
      seconds = bytes / d2h_;
      break;
    case Work::collective:
      seconds = collective_seconds(demand);
      break;
  }
  return op_seconds_ + seconds;
}

// The roofline: arithmetic or memory, whichever takes longer. Partial results come on top.
double Machine::product_seconds(const Demand& demand, double arithmetic) const {
  const double bandwidth = bandwidth_[static_cast<std::size_t>(demand.kind)];
  return std::max(arithmetic, static_cast<double>(demand.bytes) / bandwidth) +
         static_cast<double>(demand.partial) / bandwidth;
}

double Machine::attention_seconds(const Demand& demand, const Tiles& tiles) const {
  const bool own = demand.own && tiles.own > 0;
  const double beside = !own && tiles.softmax > 0 ? demand.pairs / tiles.softmax : 0;
  const double rate = own ? tiles.own * share_at(tiles.own_heads, demand.head_dim)
                          : tiles.rate * share_at(tiles.heads, demand.head_dim);
  // Nothing is known of the blocks of kernels whose rate is not.
  const bool known = own || !demand.own;
  const double all = known && demand.pairs > 0 ? 1 + demand.masked / demand.pairs : 1;
  return product_seconds(
      demand, all * (demand.flops / rate + beside) / share_at(attention_shares_, demand.size));
}

// Ranks are numbered node by node, so `here` ranks of a group lie on one node (the fewest on any
// node, where group and node do not divide each other). Every device of a node takes part, in its
// own group or in a neighbour's.
double Machine::collective_seconds(const Demand& demand) const {
  const std::int64_t here = std::clamp<std::int64_t>(
      std::gcd(demand.group * demand.stride, devices_per_node_) / demand.stride, 1, demand.group);
  const auto sent = static_cast<double>(demand.sent);
  const auto peers = static_cast<double>(demand.peers());
  const auto devices = static_cast<double>(devices_per_node_);
  double in_node = 0, between_nodes = 0;  // from a device, and from all of a node
  double out = 0;                         // from a device to other nodes, through its own NICs
  double remote = 0;                      // peers
  if (demand.hop > 0) {
    // The ranks of a group on a node that send to other nodes are as many as the hop is long, in
    // its shorter direction.
    const std::int64_t leaving = std::min({demand.hop, demand.group - demand.hop, here});
    if (leaving < here) in_node = sent;
    if (here < demand.group) {
      between_nodes = sent * devices * static_cast<double>(leaving) / static_cast<double>(here);
      out = sent;
      remote = 1;
    }
  } else if (demand.ring) {
    // In a ring, one of a group's ranks on a node sends to the next node. Libraries form as many
    // rings as there are NICs.
    if (here > 1) in_node = sent;
    if (here < demand.group) between_nodes = sent * devices / static_cast<double>(here);
    remote = static_cast<double>(demand.group - here);
  } else {
    remote = static_cast<double>(demand.group - here);
    in_node = sent * static_cast<double>(here - 1) / peers;
    out = sent * remote / peers;
    between_nodes = out * devices;
  }
  double seconds = 0;
  if (in_node > 0) seconds = in_node / link_;
  if (between_nodes > 0) {
    const double share = share_at(network_shares_, demand.sent / demand.peers());
    seconds = std::max({seconds, between_nodes / (network_ * share), out / (own_network_ * share)});
  }
  return seconds + peer_seconds_ * (peers - remote) + remote_seconds_ * remote;
}

}  // namespace fpdt
