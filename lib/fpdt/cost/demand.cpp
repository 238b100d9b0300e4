// One rule for each class of ops.
#include "fpdt/cost/demand.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <variant>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/schedule/key_pieces.h"
#include "fpdt/schedule/traffic.h"

namespace fpdt {
namespace {

// 1 + 2 + ... + n.
std::int64_t triangle(std::int64_t n) { return n > 0 ? mul(n, n + 1) / 2 : 0; }

template <class T, class... Ops>
inline constexpr bool kOneOf = (std::is_same_v<T, Ops> || ...);

// Demand of ops that are bound by the bytes of their operands.
template <class T>
inline constexpr bool kBoundByMemory =
    kOneOf<T, ColumnSum, Norm, NormBackward, SplitHeads, JoinHeads, Permute, Add, AttentionDelta,
           Activation, ActivationBackward, LossStatistics, LossSum, LossGradient, Fill, SquaredNorm,
           AdamW, Route, RouteBackward, Dispatch, Combine, CombineBackward, ExpertLoads,
           BalanceLoss, AttentionSink, AttentionSinkGradient, GroupedSum>;

class Rules {
 public:
  Rules(const Schedule& schedule, std::int64_t rank) : schedule_(schedule), rank_(rank) {}

  [[nodiscard]] Demand of(const Body& body) const {
    Demand asked;
    std::visit([&](const auto& one) { fill(asked, one); }, body);
    asked.kind = static_cast<std::int32_t>(body.index());
    return asked;
  }

 private:
  [[nodiscard]] const Buffer& buffer(const Operand& operand) const {
    return schedule_.buffers[static_cast<std::size_t>(operand.buffer)];
  }
  [[nodiscard]] std::int64_t bytes(const Operand& operand) const {
    const Buffer& of = buffer(operand);
    return mul(operand.rows < 0 ? of.rows() : operand.rows, of.row_bytes());
  }
  // Bytes of `count` elements, for an operand that holds more than the op touches; 0 when absent.
  [[nodiscard]] std::int64_t bytes(const Operand& operand, std::int64_t count) const {
    return operand.present() ? mul(count, dtype_bytes(buffer(operand).dtype)) : 0;
  }
  [[nodiscard]] std::int64_t bytes(const Target& target, std::int64_t count) const {
    return (target.accumulate ? 2 : 1) * bytes(target.operand, count);
  }

  [[nodiscard]] std::int64_t element(const Target& target) const {
    return dtype_bytes(buffer(target.operand).dtype);
  }

  // Sums bytes over the fields of a body. `operands` would do, but it builds a list, and the search
  // asks for millions of demands.
  struct ByteSum : FieldVisitor<ByteSum> {
    explicit ByteSum(const Rules& of) : rules(of) {}
    const Rules& rules;
    std::int64_t bytes = 0;

    void read(std::string_view, const Operand& operand) {
      if (operand.present()) bytes = add(bytes, rules.bytes(operand));
    }
    void target(std::string_view, const Target& target) {
      if (!target.present()) return;
      bytes = add(bytes, (target.accumulate ? 2 : 1) * rules.bytes(target.operand));
    }
    void scratch(std::string_view, const Operand&) {}  // part of the kernel's own rate
  };
  // Leaves document starts out: where documents end is not known here, so what the op reads is not
  // known either.
  template <class T>
  [[nodiscard]] std::int64_t all_bytes(const T& op) const {
    ByteSum sum(*this);
    T::fields(op, sum);
    if constexpr (requires { op.documents; }) {
      if (op.documents.present()) sum.bytes -= bytes(op.documents);
    }
    return sum.bytes;
  }

  template <class T>
  requires(kBoundByMemory<T>) void fill(Demand& asked, const T& op) const {
    asked.bytes = all_bytes(op);
    if constexpr (requires { ExpertSlice{op.slice}; }) {
      if (op.slice.count > 0) asked.bytes = of_slice(op, asked.bytes);
    }
  }

  // The share of a slice, whose experts serve as many pairs as others. A sum over choices and the
  // integers of the router have all rows, and the target of a bias has the slice alone.
  template <class T>
  [[nodiscard]] std::int64_t of_slice(const T& op, std::int64_t bytes_of_all) const {
    std::int64_t whole = bytes(op.routes);
    if constexpr (std::is_same_v<T, Combine>) {
      whole += (op.y.accumulate ? 2 : 1) * bytes(op.y.operand);
    }
    if constexpr (std::is_same_v<T, GroupedSum>) {
      whole += (op.sum.accumulate ? 2 : 1) * bytes(op.sum.operand);
    }
    return whole + div_ceil(mul(bytes_of_all - whole, op.slice.count), op.experts);
  }

  void fill(Demand& asked, const NormColumns& op) const {
    asked.bytes = bytes(op.weight, op.width) + bytes(op.values, mul(op.rows, op.width));
  }

  void fill(Demand& asked, const NormColumnsBackward& op) const {
    asked.bytes = bytes(op.x, mul(op.rows, op.width)) + bytes(op.weight, op.width) +
                  bytes(op.gradient, mul(op.rows, op.width)) + bytes(op.dweight, op.width);
  }

  void fill(Demand& asked, const Matmul& op) const {
    asked.work = Work::matmul;
    asked.flops =
        2.0 * static_cast<double>(op.m) * static_cast<double>(op.n) * static_cast<double>(op.k);
    asked.size = std::min({op.m, op.n, op.k});
    asked.bytes = bytes(op.a, mul(op.m, op.k)) + bytes(op.b, mul(op.k, op.n)) +
                  bytes(op.bias, op.n) + bytes(op.addend, mul(op.m, op.n));
    (op.out.accumulate ? asked.partial : asked.bytes) += bytes(op.out, mul(op.m, op.n));
  }

  // Pairs of the experts whose matrices the op has.
  template <class Grouped>
  static std::int64_t pairs_of(const Grouped& op) {
    return div_ceil(mul(mul(op.rows, op.active), op.slice.of(op.experts)), op.experts);
  }

  // Experts that serve equally many rows: as many products as experts. A slice of them has its
  // share of the rows.
  template <class Grouped>
  void grouped(Demand& asked, const Grouped& op) const {
    const std::int64_t pairs = mul(op.rows, op.active);
    asked.work = Work::matmul;
    asked.flops =
        2.0 * static_cast<double>(pairs) * static_cast<double>(op.n) * static_cast<double>(op.k);
    if (op.slice.count > 0) {
      asked.flops *= static_cast<double>(op.slice.count) / static_cast<double>(op.experts);
    }
    asked.size = std::min({div_ceil(pairs, op.experts), op.n, op.k});
    asked.own = true;
  }
  void fill(Demand& asked, const GroupedMatmul& op) const {
    grouped(asked, op);
    const std::int64_t pairs = pairs_of(op), experts = op.slice.of(op.experts);
    asked.bytes = bytes(op.a, mul(pairs, op.k)) + bytes(op.b, mul(experts, mul(op.n, op.k))) +
                  bytes(op.bias, mul(experts, op.n));
    (op.out.accumulate ? asked.partial : asked.bytes) += bytes(op.out, mul(pairs, op.n));
  }
  void fill(Demand& asked, const GroupedGradient& op) const {
    grouped(asked, op);
    const std::int64_t pairs = pairs_of(op);
    asked.bytes = bytes(op.dy, mul(pairs, op.n)) + bytes(op.x, mul(pairs, op.k));
    asked.partial = bytes(op.sum, mul(op.slice.of(op.experts), mul(op.n, op.k)));
  }

  template <class Tile>
  void attention(Demand& asked, const Tile& op, double flops_per_pair) const {
    const std::int64_t pairs =
        visible_pairs(op.q_first.at(rank_), op.q_rows, op.k_first.at(rank_), op.k_rows, op.window);
    asked.pairs = static_cast<double>(pairs) * static_cast<double>(op.heads);
    asked.flops = flops_per_pair * asked.pairs * static_cast<double>(op.head_dim);
    asked.size = std::min(op.q_rows, op.k_rows);
    asked.head_dim = op.head_dim;
    asked.own = !op.workspace.present();
    asked.masked = masked_pairs(op) * static_cast<double>(op.heads);
    if (pairs > 0) asked.bytes = all_bytes(op);  // else the op returns at once
  }

  // The kernels of windows compute blocks of 128 queries and 64 keys, and the last key that a query
  // sees is in the middle of a block, as is the first one. Rates of long tiles know of no edges.
  // cuDNN takes as long for a window of 4096 on an H200 as for so many more keys; its rates know of
  // the diagonal.
  template <class Tile>
  [[nodiscard]] double masked_pairs(const Tile& op) const {
    if (op.window == 0) return 0;
    constexpr std::int64_t kBeside = (128 + 64 / 2) / 2;  // keys, at each edge
    constexpr std::int64_t kLibrary = std::is_same_v<Tile, AttentionForward> ? 640 : 1500;
    const std::int64_t queries = op.q_first.at(rank_), keys = op.k_first.at(rank_);
    const auto rows_with_edge = [&](std::int64_t first) {
      const std::int64_t end = std::min(queries + op.q_rows, first + op.k_rows);
      return std::max<std::int64_t>(0, end - std::max(queries, first));
    };
    const std::int64_t first = rows_with_edge(keys + op.window);
    return static_cast<double>(op.workspace.present() ? mul(kLibrary, first)
                                                      : mul(kBeside, rows_with_edge(keys) + first));
  }

  // A library's forward writes o in f32, 2 bytes more than the bf16 of published rates. The backend
  // then reads it and writes it, or merges it with what was there. The same holds for lse.
  [[nodiscard]] std::int64_t merged_bytes(const AttentionForward& op) const {
    constexpr std::int64_t kMade = 2 + 4;
    const std::int64_t rows = mul(op.q_rows, op.heads);
    std::int64_t sum = 0;
    bool held = op.o.accumulate;
    const auto merge = [&](const KeyPiece&) {
      const std::int64_t passes = held ? 2 : 1;
      sum += rows * (op.head_dim * (kMade + passes * element(op.o)) + 4 * (1 + passes));
      held = true;
    };
    each_key_piece(op.q_first.at(rank_), op.q_rows, op.k_first.at(rank_), op.k_rows, op.k_rows,
                   merge);
    return sum;
  }

  // A library's backward, for each piece: the backend makes a stand-in for o from dout (2 + 2
  // bytes), zeroes dq (4), then reads it and writes or adds it; it copies lse and reads delta. It
  // reads the members' dk and dv and adds them up, and writes or adds the sum of each launch.
  [[nodiscard]] std::int64_t added_bytes(const AttentionBackward& op) const {
    const std::int64_t queries = mul(op.q_rows, op.heads);
    const std::int64_t group = div_exact(op.heads, op.kv_heads);
    const std::int64_t launches = group / backward_members(op.q_rows, op.heads, op.kv_heads);
    const std::int64_t passes = launches * 2 - (op.dkv.accumulate ? 0 : 1);
    std::int64_t sum = 0;
    bool held = op.dq.accumulate;
    const auto add_up = [&](const KeyPiece& piece) {
      sum += queries * (op.head_dim * (2 + 2 + 4 + 4 + (held ? 8 : 4)) + 12);
      sum += mul(2 * op.kv_heads * piece.rows, op.head_dim) * 4 * (group + passes);
      held = true;
    };
    each_key_piece(op.q_first.at(rank_), op.q_rows, op.k_first.at(rank_), op.k_rows,
                   kBackwardPieceMost, add_up);
    return sum;
  }
  void fill(Demand& asked, const AttentionForward& op) const {
    asked.work = Work::attention_forward;
    attention(asked, op, kForwardFlops);
    if (op.workspace.present()) asked.partial = merged_bytes(op);
  }
  void fill(Demand& asked, const AttentionBackward& op) const {
    asked.work = Work::attention_backward;
    attention(asked, op, kBackwardFlops);
    if (op.workspace.present()) asked.partial = added_bytes(op);
  }

  // Counts only the rows of a table that are looked up.
  void fill(Demand& asked, const Embedding& op) const {
    const std::int64_t values = mul(op.rows, op.width);
    asked.bytes = bytes(op.tokens, op.rows) + bytes(op.table, values) +
                  bytes(op.positions, values) + bytes(op.x, values);
  }
  void fill(Demand& asked, const EmbeddingBackward& op) const {
    const std::int64_t values = mul(op.rows, op.width);
    asked.bytes = bytes(op.tokens, op.rows) + bytes(op.dx, values) + bytes(op.dtable, values) +
                  bytes(op.dpositions, values);
  }

  void fill(Demand& asked, const Copy& op) const {
    const bool from_device = buffer(op.source).space == MemorySpace::device;
    const bool to_device = buffer(op.target.operand).space == MemorySpace::device;
    if (from_device == to_device) {
      asked.bytes = all_bytes(op);
      return;
    }
    asked.work = to_device ? Work::h2d : Work::d2h;
    asked.bytes = bytes(op.source);
  }

  // Sums are no rings: members receive the blocks of all others and add them in member order.
  template <class T>
  requires IsCollective<T>
  void fill(Demand& asked, const T& op) const {
    asked.bytes = all_bytes(op);
    const Group& group = group_named(schedule_, op.group);
    if (group.size == 1) return;
    std::int64_t whole = 0;
    for (const Operand& operand : op.send) whole = add(whole, bytes(operand));
    asked.work = Work::collective;
    asked.group = group.size;
    asked.stride = std::abs(group.stride);
    if constexpr (std::is_same_v<T, Exchange>) asked.hop = op.hop;
    asked.sent = mul(asked.peers(), bytes_to_each<T>(group.size, whole));
    asked.ring = std::is_same_v<T, AllGather>;
  }

  const Schedule& schedule_;
  std::int64_t rank_;
};

}  // namespace

std::int64_t visible_pairs(std::int64_t q_first, std::int64_t q_rows, std::int64_t k_first,
                           std::int64_t k_rows, std::int64_t window) {
  if (window > 0) {
    return visible_pairs(q_first, q_rows, k_first, k_rows) -
           visible_pairs(q_first - window, q_rows, k_first, k_rows);
  }
  // Query q sees q + 1 keys, without those before k_first and from k_first + k_rows on. The count
  // is a sum of ramps, each the difference of two triangles.
  const std::int64_t q_end = q_first + q_rows;
  const std::int64_t k_end = k_first + k_rows;
  return triangle(q_end - k_first) - triangle(q_first - k_first) - triangle(q_end - k_end) +
         triangle(q_first - k_end);
}

Demand demand(const Schedule& schedule, const Op& op, std::int64_t rank) {
  return Rules(schedule, rank).of(op.body);
}

std::vector<std::vector<Demand>> demands(const Schedule& schedule, std::int64_t rank) {
  const Rules rules(schedule, rank);
  std::vector<std::vector<Demand>> all;
  all.reserve(schedule.blocks.size());
  for (const Block& block : schedule.blocks) {
    std::vector<Demand>& list = all.emplace_back();
    list.reserve(block.ops.size());
    for (const Op& op : block.ops) list.push_back(rules.of(op.body));
  }
  return all;
}

}  // namespace fpdt
