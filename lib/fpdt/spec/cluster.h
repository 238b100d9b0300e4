// The machine: how many devices, what each holds, and how fast it is.
//
// Rates are published or measured (`fpdt-run bench` writes them). Each is a typical value with the
// range that was seen; every predicted time carries that range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/base/units.h"
#include "fpdt/base/words.h"

namespace fpdt {

// low <= typical <= high. A single number in a file stands for all three.
struct Rate {
  double typical = 0;
  double low = 0;
  double high = 0;
  bool operator==(const Rate&) const = default;
};

// The share (0 to 1] of a large op's rate that an op of `size` reaches. The size is the rows of an
// attention tile (the shorter side), its head_dim, or the smallest of m, n, k of a product. Shares
// are interpolated linearly in the logarithm of the size; beyond the points the nearest one holds.
struct SizeShare {
  std::int64_t size = 0;
  double share = 1;
  bool operator==(const SizeShare&) const = default;
};

// The rate of an op kind (a word of kBodyNames) that moves its bytes at a rate of its own.
struct KindRate {
  std::string kind;
  Rate bytes_per_second;
  bool operator==(const KindRate&) const = default;
};

// How much work slows down while other work runs: 1 = not at all, 0.5 = half the rate.
struct Interference {
  Rate compute_beside_copy{1, 1, 1};
  Rate compute_beside_collective{1, 1, 1};
  Rate copy_beside_compute{1, 1, 1};
  Rate copy_beside_collective{1, 1, 1};
  Rate collective_beside_compute{1, 1, 1};
  Rate collective_beside_copy{1, 1, 1};
  Rate h2d_beside_d2h{1, 1, 1};  // full duplex
  Rate d2h_beside_h2d{1, 1, 1};
  bool operator==(const Interference&) const = default;
};

// One device and its links. Rates are flops and bytes per second of one device while all devices
// work.
struct Rates {
  double peak_flops = 0;    // dense datasheet peak in bf16 (f32 on CPUs); MFU is relative to it
  Rate matmul;              // large products
  Rate attention_forward;   // large tiles: 4 flops a (query, key, D)
  Rate attention_backward;  // 10 flops a (query, key, D)
  // If the rates above are cuDNN's, the rates of the backend's own kernels, for the tiles that
  // cuDNN does not take. 0: unknown; such a tile then costs what cuDNN's would.
  Rate own_attention_forward, own_attention_backward;
  // Products of experts, on kernels of the backend. 0: unknown; they then cost what others do.
  Rate grouped_matmul;
  // Softmax of attention, where it takes time beside the products: (query, key) pairs of a head per
  // second. It weighs more the smaller D is. 0: its time is within the flops.
  Rate softmax_forward, softmax_backward;
  Rate device_bandwidth;  // bytes read and written by all other ops
  Rate h2d, d2h;          // one direction alone, one device alone
  Rate switch_bandwidth;  // one PCIe switch and direction, shared by its devices; 0: no limit
  std::int64_t devices_per_switch = 1;
  // Memory of one NUMA node of the host, which its devices share: what they read and write together
  // while all copy; 0: no limit.
  Rate host_bandwidth;
  Rate link;     // sent by one device to the others of its node (NVLink, or PCIe), each way
  Rate network;  // sent by one node to others, all NICs together; 0 only for one node
  std::int64_t nics = 0;  // of a node: a device uses its part of them, and one at least; 0: all
  // Share of `network` by the bytes that a rank sends to each peer.
  std::vector<SizeShare> network_shares;
  Rate op_seconds;          // fixed time of an op on its lane
  Rate collective_seconds;  // fixed time of a collective for each peer
  Rate network_seconds;     // the same for a peer on another node; 0: as collective_seconds
  std::vector<SizeShare> matmul_shares, attention_shares;
  // Share of the attention rates by the size of a head, and of own_attention_*. Those of backward
  // are the same where none are given.
  std::vector<SizeShare> attention_heads, own_attention_heads;
  std::vector<SizeShare> attention_heads_backward, own_attention_heads_backward;
  std::vector<KindRate> kinds;
  Interference interference;
  bool operator==(const Rates&) const = default;

  [[nodiscard]] const std::vector<SizeShare>& heads_backward() const {
    return attention_heads_backward.empty() ? attention_heads : attention_heads_backward;
  }
  [[nodiscard]] const std::vector<SizeShare>& own_heads_backward() const {
    return own_attention_heads_backward.empty() ? own_attention_heads
                                                : own_attention_heads_backward;
  }
};

// Which kernels compute attention tiles: the backend's own, or cuDNN's, which are faster, do not
// support documents and need a workspace (attention_kernels.h).
enum class AttentionKernels : std::uint8_t { own, cudnn };
constexpr auto words_of(AttentionKernels) { return word_list("own", "cudnn"); }

// Device memory outside the arena. Communicators are those of NCCL 2.28.9: a channel takes 10 MiB
// to receive from a peer of the node and 2 MiB to send to it (transport/p2p.cc). Messages to all
// peers of other nodes share buffers, and rings across nodes have their own (transport/net.cc).
struct OutsideArena {
  Bytes context;    // driver, modules
  Bytes libraries;  // handles and kernels of cuBLASLt, cuDNN, ...
  Bytes workspace;  // memory that a rank's backend keeps for its kernels
  Bytes per_peer;   // of a communicator, for each peer on the same node
  Bytes network;    // of a communicator whose ranks are on several nodes
  bool operator==(const OutsideArena&) const = default;

  // Of communicators for collectives: so many peers on the node, summed over communicators, of
  // which `across` have ranks on several nodes.
  [[nodiscard]] Bytes channels(std::int64_t peers, std::int64_t across) const {
    return peers * per_peer + across * network;
  }
  // Of the one for messages between steps, which connects all ranks by one channel. NCCL opens it
  // twice: for messages, and for its own all-gather.
  [[nodiscard]] Bytes message_channel(std::int64_t peers, bool across) const {
    constexpr Bytes kPeer{2 * 12 << 20}, kNetwork{40 << 20};
    return peers * std::min(per_peer, kPeer) + (across ? std::min(network, kNetwork) : Bytes{});
  }
  // A GPU maps each page of 4 KiB of the host memory that its process has pinned: 8 bytes on an
  // H200. 0 where there is no context, as on a CPU.
  [[nodiscard]] Bytes page_tables(Bytes pinned) const {
    constexpr std::int64_t kPage = 4096, kEntry = 8;
    return context.value > 0 ? Bytes{div_ceil(pinned.value, kPage) * kEntry} : Bytes{};
  }
};

// Memory of a node that no plan may use. The memory that loading and saving take is part of a plan
// (checkpoint_bytes.h).
struct OutsideHost {
  Bytes system;       // kernel with its page descriptors, services, files in use
  Bytes page_tables;  // of pinned memory, in kernel and driver
  Bytes process;      // of each rank: code, libraries, the driver's side on the host
  Bytes loader;       // of each rank: tokens of the steps to come
  bool operator==(const OutsideHost&) const = default;
};

struct ClusterSpec {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t numa_nodes = 1;    // on one node; devices and host memory are spread evenly
  Bytes device_memory;            // of one device
  Bytes host_memory;              // of one node
  std::int64_t row_multiple = 1;  // of a chunk after the all-to-all; cuDNN: 128, CPU: 1
  AttentionKernels attention = AttentionKernels::own;
  std::int64_t largest_cudnn_head = 128;  // that its backward takes: 256 on sm_90, 128 on others
  bool cudnn_windows = false;  // cuDNN computes the tile of rows with their own keys, window or not
  std::string plan_only;       // why fpdt can plan for it but not run on it; empty: it can
  OutsideArena outside;
  OutsideHost host_outside;
  Rates rates;
  std::string source;
  bool operator==(const ClusterSpec&) const = default;

  [[nodiscard]] std::int64_t devices() const { return nodes * devices_per_node; }
  // A CPU has no context.
  [[nodiscard]] bool has_gpus() const { return outside.context.value > 0; }
  // Bytes outside the arena of one device whose collectives have such communicators, and whose rank
  // pins so much host memory.
  [[nodiscard]] Bytes outside_bytes(std::int64_t peers, std::int64_t across,
                                    Bytes pinned = {}) const {
    return outside.context + outside.libraries + outside.workspace +
           outside.channels(peers, across) +
           outside.message_channel(devices_per_node - 1, nodes > 1) + outside.page_tables(pinned);
  }
  // With one of all devices.
  [[nodiscard]] Bytes outside_bytes() const {
    return outside_bytes(devices_per_node - 1, nodes > 1 ? 1 : 0);
  }
  // The same for the host memory of one node, and the memory that it leaves.
  [[nodiscard]] Bytes host_outside_bytes() const {
    return host_outside.system + host_outside.page_tables +
           devices_per_node * (host_outside.process + host_outside.loader);
  }
  [[nodiscard]] Bytes host_available() const { return host_memory - host_outside_bytes(); }
};

// Whether there are links within nodes and links between them.
inline bool has_nodes_of_several(const ClusterSpec& cluster) {
  return cluster.nodes > 1 && cluster.devices_per_node > 1;
}

// A rate by its key.
struct NamedRate {
  std::string_view name;
  Rate rate;
};
// The rates that seconds need: those of a device, of its node if it has several, and between nodes.
std::vector<NamedRate> needed_rates(const ClusterSpec& cluster);
// The keys of those that the cluster does not have.
std::vector<std::string_view> missing_rates(const ClusterSpec& cluster);

// Estimates for a cluster whose file does not say what lies outside its arenas. Linux describes
// each page of 4 KiB in 64 bytes, and maps it with 8; the driver of a GPU keeps 48 for each pinned
// one. A cluster whose attention is the backend's own may be a CPU: no memory of a device lies
// outside there.
OutsideArena estimated_outside(const ClusterSpec& cluster);
OutsideHost estimated_host_outside(const ClusterSpec& cluster);

// A cluster of `devices` of these devices: whole nodes, or a part of one node, which keeps all the
// node's host memory. InputError where there is no such cluster, such as one and a half nodes.
ClusterSpec with_devices(const ClusterSpec& cluster, std::int64_t devices);

std::vector<Diagnostic> check(const ClusterSpec& cluster);

}  // namespace fpdt
