// Amounts of work and bytes that an op demands of the machine, never seconds.
//
// Flops count what is executed under the causal mask: an attention tile counts the (query, key)
// pairs that it may see, at 4*D flops a pair and head forward and 10*D backward (scores are
// recomputed, FlashAttention, Dao et al., arXiv 2307.08691). Bytes count every operand once, an
// accumulated one as read and written. Document starts are left out: where documents end is not
// known here.
//
// Partial results cost more. A product reads and writes its accumulation target when its arithmetic
// is done. A library's attention tile leaves its results in the workspace, and the backend's
// kernels merge or add them, piece by piece (ADR 0016). These bytes are counted apart, since no
// arithmetic hides them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

enum class Work : std::uint8_t {
  matmul,
  attention_forward,
  attention_backward,
  memory,      // everything bound by device memory
  h2d,         // copies from the host to the device
  d2h,         // copies from the device to the host
  collective,  // between ranks; in a group of one it is memory work
};
constexpr auto words_of(Work) {
  return word_list("matmul", "attention_forward", "attention_backward", "memory", "h2d", "d2h",
                   "collective");
}
inline constexpr std::size_t kWorks = words<Work>().size();

// The flops of an attention tile for each pair, head and element of a head.
inline constexpr double kForwardFlops = 4;
inline constexpr double kBackwardFlops = 10;

struct Demand {
  Work work = Work::memory;
  std::int32_t kind = 0;      // index of the body in kBodyNames
  double flops = 0;           // executed
  double pairs = 0;           // of an attention tile: (query, key) pairs, of every head
  double masked = 0;          // pairs that a window hides, whose time its kernels take beside these
  std::int64_t bytes = 0;     // of device memory, or of the transfer
  std::int64_t partial = 0;   // extra bytes of device memory, for partial results
  std::int64_t size = 0;      // see SizeShare; 0 where it does not apply
  std::int64_t head_dim = 0;  // of an attention tile
  bool own = false;        // an attention tile or a product of experts of the backend's own kernels
  std::int64_t group = 1;  // ranks of the collective
  std::int64_t stride = 1;  // distance between them
  std::int64_t sent = 0;    // bytes that one rank sends: (K-1)/K of an all-to-all's, for example
  bool ring = false;        // sends to the next rank only; else to all others equally (all-to-all)
  std::int64_t hop = 0;     // of an exchange: sends once, to the rank so many members further

  // How many others it meets one after another.
  [[nodiscard]] std::int64_t peers() const { return hop > 0 ? 1 : group - 1; }
};

// The demand of an op on one rank. Ranks may differ in the pairs that an attention tile sees.
// Precondition: the op belongs to this schedule.
Demand demand(const Schedule& schedule, const Op& op, std::int64_t rank = 0);

// The demands of every op: [block][op].
std::vector<std::vector<Demand>> demands(const Schedule& schedule, std::int64_t rank = 0);

// Pairs (q, k) with k <= q of query rows [q_first, +q_rows) and key rows [k_first, +k_rows); with a
// window, those with q < k + window.
std::int64_t visible_pairs(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                           std::int64_t k_rows, std::int64_t window = 0);

}  // namespace fpdt
