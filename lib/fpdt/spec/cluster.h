// The machine: how many devices, what each holds, and how fast it is.
//
// Rates are published or measured (`fpdt-run bench` writes them). Each is a typical value with the
// range that was seen, and the range is carried through to every second that follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/base/words.h"

namespace fpdt {

// low <= typical <= high. In files a single number stands for all three.
struct Rate {
  double typical = 0;
  double low = 0;
  double high = 0;
  bool operator==(const Rate&) const = default;
};

// The share of a large op's rate (0 to 1] that an op of `size` reaches: rows of an attention tile
// (the shorter side), or the smallest of m, n, k of a product. Between points linear in the
// logarithm of the size; beyond them the nearest.
struct SizeShare {
  std::int64_t size = 0;
  double share = 1;
  bool operator==(const SizeShare&) const = default;
};

// An op kind (a word of kBodyNames) whose bytes move at a rate of their own.
struct KindRate {
  std::string kind;
  Rate bytes_per_second;
  bool operator==(const KindRate&) const = default;
};

// How much slower work becomes beside other work: 1 = not at all, 0.5 = half the rate.
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

// One device and its links. flops and bytes per second of one device, all devices busy alike.
struct Rates {
  double peak_flops = 0;    // dense, of the datasheet, in bf16 (f32 on CPUs): the unit of MFU
  Rate matmul;              // of large products
  Rate attention_forward;   // of large tiles: 4 flops a (query, key, D)
  Rate attention_backward;  // 10 flops a (query, key, D)
  // Softmax of attention, where it takes time of its own beside the products: (query, key) pairs of
  // a head. It weighs more the smaller D is. 0: within the flops.
  Rate softmax_forward, softmax_backward;
  Rate device_bandwidth;  // bytes read and written by all other ops
  Rate h2d, d2h;          // one direction alone, one device alone
  Rate switch_bandwidth;  // of one PCIe switch and direction, shared by its devices; 0: no limit
  std::int64_t devices_per_switch = 1;
  Rate link;        // sent by one device to the others of its node (NVLink, or PCIe), each way
  Rate network;     // sent by one node to others, all NICs together; 0 only on one node
  Rate op_seconds;  // fixed time of an op on its lane
  Rate collective_seconds;  // fixed time of a collective, each peer
  std::vector<SizeShare> matmul_shares, attention_shares;
  std::vector<KindRate> kinds;
  Interference interference;
  bool operator==(const Rates&) const = default;
};

// Whose kernels compute the tiles of attention: those of the backend, or cuDNN's, which are faster,
// know no documents and want a workspace (attention_kernels.h).
enum class AttentionKernels : std::uint8_t { own, cudnn };
constexpr auto words_of(AttentionKernels) { return word_list("own", "cudnn"); }

// Device memory that the arena does not hold.
struct OutsideArena {
  Bytes context;          // driver, modules
  Bytes libraries;        // handles and kernels of cuBLASLt, cuDNN, ...
  Bytes workspace;        // what a rank's backend keeps for its kernels
  Bytes per_peer;         // channels of the communicator, each peer of a rank on the same node
  Bytes per_remote_peer;  // each peer on another node
  bool operator==(const OutsideArena&) const = default;
};

struct ClusterSpec {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t numa_nodes = 1;    // of one node; devices and host memory are spread evenly
  Bytes device_memory;            // of one device
  Bytes host_memory;              // of one node
  std::int64_t row_multiple = 1;  // rows of a chunk after the all-to-all; cuDNN: 128, CPU: 1
  AttentionKernels attention = AttentionKernels::own;
  OutsideArena outside;
  Rates rates;
  std::string source;
  bool operator==(const ClusterSpec&) const = default;

  [[nodiscard]] std::int64_t devices() const { return nodes * devices_per_node; }
  // What lies outside the arena of one device, in a job over all of them.
  [[nodiscard]] Bytes outside_bytes() const {
    return outside.context + outside.libraries + outside.workspace +
           (devices_per_node - 1) * outside.per_peer +
           (devices() - devices_per_node) * outside.per_remote_peer;
  }
};

// A cluster of `devices` of these devices: whole nodes, or a part of one node, which keeps all the
// node's host memory. InputError where there is no such cluster, such as one and a half nodes.
ClusterSpec with_devices(const ClusterSpec& cluster, std::int64_t devices);

std::vector<Diagnostic> check(const ClusterSpec& cluster);

}  // namespace fpdt
