// Checks of a cluster, and the same machines in another number.
#include "fpdt/spec/cluster.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace fpdt {
namespace {

constexpr std::int64_t kNodesMax = 65536;
constexpr std::int64_t kRowsOfCudnn =
    128;  // other lengths are known to fail (pytorch issue 196678)

class Checker {
 public:
  explicit Checker(const ClusterSpec& cluster) : where_(fmt::format("cluster {}", cluster.name)) {}

  template <class... T>
  void wrong(std::string_view code, fmt::format_string<T...> text, T&&... values) {
    list.push_back({std::string(code), where_, fmt::format(text, std::forward<T>(values)...)});
  }
  void rate(std::string_view name, const Rate& rate) {
    // Written so that NaN is refused.
    if (0 <= rate.low && rate.low <= rate.typical && rate.typical <= rate.high &&
        std::isfinite(rate.high)) {
      return;
    }
    wrong("C102", "{}: expected 0 <= low <= typical <= high, found {}, {}, {}", name, rate.low,
          rate.typical, rate.high);
  }
  // A known rate is over 0. Neither end of its range may be 0, since rates are divisors.
  void speed(std::string_view name, const Rate& speed) {
    rate(name, speed);
    if (speed.typical > 0 && !(speed.low > 0)) {
      wrong("C102", "{}: expected a low end greater than 0, found {}", name, speed.low);
    }
  }
  void factor(std::string_view name, const Rate& factor) {
    rate(name, factor);
    if (!(factor.low > 0 && factor.high <= 1)) {
      wrong("C102", "{}: expected a factor greater than 0 and at most 1, found {} to {}", name,
            factor.low, factor.high);
    }
  }
  void shares(std::string_view name, const std::vector<SizeShare>& points) {
    std::int64_t last = 0;
    for (const auto& [size, share] : points) {
      if (size <= last) {
        wrong("C102", "{}: expected ascending sizes from 1, found {} after {}", name, size, last);
      }
      if (!(share > 0 && share <= 1)) {
        wrong("C102", "{}: expected a share greater than 0 and at most 1, found {} at size {}",
              name, share, size);
      }
      last = size;
    }
  }

  std::vector<Diagnostic> list;

 private:
  std::string where_;
};

void check_sizes(Checker& check, const ClusterSpec& cluster) {
  if (cluster.nodes < 1 || cluster.nodes > kNodesMax || cluster.devices_per_node < 1 ||
      cluster.devices_per_node > 1024) {
    check.wrong("C101", "expected 1 to {} nodes of 1 to 1024 devices, found {} of {}", kNodesMax,
                cluster.nodes, cluster.devices_per_node);
    return;  // the rest multiplies by them
  }
  if (cluster.numa_nodes < 1 || cluster.numa_nodes > 64) {
    check.wrong("C101", "numa_nodes: expected 1 to 64, found {}", cluster.numa_nodes);
  }
  if (cluster.device_memory.value <= 0 || cluster.host_memory.value <= 0) {
    check.wrong("C101", "device_memory and host_memory must be greater than 0");
  }
  if (cluster.row_multiple < 1 || cluster.row_multiple > 4096) {
    check.wrong("C101", "row_multiple: expected 1 to 4096, found {}", cluster.row_multiple);
  }
  if (cluster.attention == AttentionKernels::cudnn && cluster.row_multiple % kRowsOfCudnn != 0) {
    check.wrong("C101", "row_multiple: attention: cudnn needs a multiple of {}, found {}",
                kRowsOfCudnn, cluster.row_multiple);
  }
  if (cluster.largest_cudnn_head != 128 && cluster.largest_cudnn_head != 256) {
    check.wrong("C101", "largest_cudnn_head: expected 128 or 256, found {}",
                cluster.largest_cudnn_head);
  }
  if (!cluster.plan_only.empty() && cluster.plan_only.find(' ') == std::string::npos) {
    check.wrong("C101", "plan_only: expected the reason in words, found \"{}\"", cluster.plan_only);
  }
  if (cluster.host_memory.value > 0 && cluster.host_available().value <= 0) {
    check.wrong("C101", "host_outside: expected less than the host_memory of {}, found {}",
                format_bytes(cluster.host_memory), format_bytes(cluster.host_outside_bytes()));
  }
  constexpr std::int64_t kPerPeerMax = std::int64_t{1} << 32;  // times the peers: 63 bits
  for (const Bytes one : {cluster.outside.per_peer, cluster.outside.network}) {
    if (one.value <= kPerPeerMax) continue;
    check.wrong("C101", "outside: expected at most 4 GiB for a peer or communicator, found {}",
                format_bytes(one));
  }
}

void check_rates(Checker& check, const Rates& rates) {
  if (!(rates.peak_flops >= 0 && std::isfinite(rates.peak_flops))) {
    check.wrong("C102", "peak_flops: expected 0 or more, found {}", rates.peak_flops);
  } else if (rates.matmul.typical > 0 && rates.peak_flops == 0) {
    check.wrong("C102", "peak_flops: expected the peak of the data sheet, of which MFU is a share");
  }
  const auto below_peak = [&](std::string_view name, const Rate& rate) {
    if (!(rates.peak_flops > 0) || !(rate.typical > rates.peak_flops)) return;
    check.wrong("C102", "{}: expected at most the peak_flops of {:.4g}, found {:.4g}", name,
                rates.peak_flops, rate.typical);
  };
  below_peak("matmul", rates.matmul);
  // With a softmax, it is one of two terms of a fit, and no speed that a kernel reaches.
  if (!(rates.softmax_forward.typical > 0)) {
    below_peak("attention_forward", rates.attention_forward);
  }
  if (!(rates.softmax_backward.typical > 0)) {
    below_peak("attention_backward", rates.attention_backward);
  }
  below_peak("own_attention_forward", rates.own_attention_forward);
  below_peak("own_attention_backward", rates.own_attention_backward);
  below_peak("grouped_matmul", rates.grouped_matmul);
  check.speed("matmul", rates.matmul);
  check.speed("grouped_matmul", rates.grouped_matmul);
  check.speed("attention_forward", rates.attention_forward);
  check.speed("attention_backward", rates.attention_backward);
  check.speed("own_attention_forward", rates.own_attention_forward);
  check.speed("own_attention_backward", rates.own_attention_backward);
  check.speed("softmax_forward", rates.softmax_forward);
  check.speed("softmax_backward", rates.softmax_backward);
  check.speed("device_bandwidth", rates.device_bandwidth);
  check.speed("h2d", rates.h2d);
  check.speed("d2h", rates.d2h);
  check.speed("switch_bandwidth", rates.switch_bandwidth);
  if (rates.devices_per_switch < 1 || rates.devices_per_switch > 1024) {
    check.wrong("C102", "devices_per_switch: expected 1 to 1024, found {}",
                rates.devices_per_switch);
  }
  check.speed("host_bandwidth", rates.host_bandwidth);
  check.speed("link", rates.link);
  check.speed("network", rates.network);
  if (rates.nics < 0 || rates.nics > 1024) {
    check.wrong("C102", "nics: expected 0 to 1024, found {}", rates.nics);
  }
  check.rate("op_seconds", rates.op_seconds);
  check.rate("collective_seconds", rates.collective_seconds);
  check.rate("network_seconds", rates.network_seconds);
  check.shares("network_shares", rates.network_shares);
  check.shares("matmul_shares", rates.matmul_shares);
  check.shares("attention_shares", rates.attention_shares);
  check.shares("attention_heads", rates.attention_heads);
  check.shares("own_attention_heads", rates.own_attention_heads);
  check.shares("attention_heads_backward", rates.attention_heads_backward);
  check.shares("own_attention_heads_backward", rates.own_attention_heads_backward);
  for (const KindRate& one : rates.kinds) {
    check.speed(fmt::format("kinds.{}", one.kind), one.bytes_per_second);
    if (!(one.bytes_per_second.typical > 0)) {
      check.wrong("C102", "kinds.{}: expected a rate greater than 0", one.kind);
    }
  }
  const Interference& beside = rates.interference;
  check.factor("compute_beside_copy", beside.compute_beside_copy);
  check.factor("compute_beside_collective", beside.compute_beside_collective);
  check.factor("copy_beside_compute", beside.copy_beside_compute);
  check.factor("copy_beside_collective", beside.copy_beside_collective);
  check.factor("collective_beside_compute", beside.collective_beside_compute);
  check.factor("collective_beside_copy", beside.collective_beside_copy);
  check.factor("h2d_beside_d2h", beside.h2d_beside_d2h);
  check.factor("d2h_beside_h2d", beside.d2h_beside_h2d);
}

// "a100-80g-x4" for 8 -> "a100-80g-x8"; a name without a count gets one.
std::string renamed(std::string_view name, std::int64_t devices) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const bool counted = last != std::string_view::npos && last > 0 && last + 1 < name.size() &&
                       name.substr(last - 1, 2) == "-x";
  return fmt::format("{}-x{}", counted ? name.substr(0, last - 1) : name, devices);
}

}  // namespace

ClusterSpec with_devices(const ClusterSpec& cluster, std::int64_t devices) {
  if (devices == cluster.devices()) return cluster;
  const std::int64_t node = cluster.devices_per_node;
  if (devices < 1 || devices > kNodesMax * node) {
    throw InputError(
        fmt::format("{} devices of {}: expected 1 to {}", devices, cluster.name, kNodesMax * node));
  }
  ClusterSpec other = cluster;
  other.name = renamed(cluster.name, devices);
  if (devices <= node) {
    other.nodes = 1;
    other.devices_per_node = devices;
    return other;
  }
  if (devices % node != 0) {
    const std::int64_t below = devices / node * node;
    throw InputError(fmt::format(
        "{} devices of {}: beyond one node ({} devices), use whole nodes; the nearest are {} "
        "and {}",
        devices, cluster.name, node, below, below + node));
  }
  if (cluster.nodes == 1 && !(cluster.rates.network.typical > 0) &&
      cluster.rates.matmul.typical > 0) {
    throw InputError(
        fmt::format("{} devices of {}: that is {} nodes, and the cluster file has no network rate; "
                    "at most {} can be used",
                    devices, cluster.name, devices / node, node));
  }
  other.nodes = devices / node;
  return other;
}

std::vector<NamedRate> needed_rates(const ClusterSpec& cluster) {
  const Rates& rates = cluster.rates;
  std::vector<NamedRate> all{{"matmul", rates.matmul},
                             {"attention_forward", rates.attention_forward},
                             {"attention_backward", rates.attention_backward},
                             {"device_bandwidth", rates.device_bandwidth},
                             {"h2d", rates.h2d},
                             {"d2h", rates.d2h}};
  if (cluster.devices_per_node > 1) all.push_back({"link", rates.link});
  if (cluster.nodes > 1) all.push_back({"network", rates.network});
  return all;
}

std::vector<std::string_view> missing_rates(const ClusterSpec& cluster) {
  std::vector<std::string_view> names;
  for (const auto& [name, rate] : needed_rates(cluster)) {
    if (!(rate.typical > 0)) names.push_back(name);
  }
  return names;
}

OutsideArena estimated_outside(const ClusterSpec& cluster) {
  if (cluster.attention == AttentionKernels::own) return {};
  constexpr std::int64_t kMebi = 1 << 20;
  return {Bytes{1400 * kMebi}, Bytes{128 * kMebi}, Bytes{48 * kMebi}, Bytes{384 * kMebi},
          Bytes{640 * kMebi}};
}

OutsideHost estimated_host_outside(const ClusterSpec& cluster) {
  constexpr std::int64_t kMebi = 1 << 20;
  constexpr std::int64_t kPage = 4096, kDescriptor = 64, kEntry = 8, kOfDriver = 48;
  const bool own = cluster.attention == AttentionKernels::own;
  const std::int64_t pages = cluster.host_memory.value / kPage;
  const std::int64_t descriptors = pages * kDescriptor;
  const std::int64_t most = descriptors / std::max<std::int64_t>(cluster.devices_per_node, 1);
  return {Bytes{2 * descriptors}, Bytes{pages * (kEntry + (own ? 0 : kOfDriver))},
          Bytes{std::min((own ? 64 : 2048) * kMebi, most)}, Bytes{std::min(16 * kMebi, most)}};
}

std::vector<Diagnostic> check(const ClusterSpec& cluster) {
  Checker checker(cluster);
  check_sizes(checker, cluster);
  check_rates(checker, cluster.rates);
  return checker.list;
}

}  // namespace fpdt
