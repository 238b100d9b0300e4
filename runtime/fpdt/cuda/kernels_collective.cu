// Collectives of ranks that share memory. A member receives `parts` equal parts, each the sum of
// `terms` members' blocks. An all-to-all or all-gather has one part of one term for each member. A
// reduction has one part with all members as terms, an exchange one part of one term.
#include <algorithm>
#include <array>
#include <variant>

#include "fpdt/base/math.h"
#include "fpdt/cuda/collective.h"
#include "fpdt/cuda/packs.h"

namespace fpdt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // accesses of a thread

struct Sends {
  const std::byte* data[kMembersMost] = {};  // first byte received from each member
};

// Napkin: moves twice the bytes received; bound by memory. A part has `block` units.
template <class Unit>
__global__ void copy_parts(Unit* target, Sends sends, std::int64_t block, unsigned pieces) {
  const std::int64_t part = blockIdx.x / pieces;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x % pieces) * (kThreads * kEach);
  const Unit* from = reinterpret_cast<const Unit*>(sends.data[part]);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = begin + i * kThreads + threadIdx.x;
    if (at < block) target[part * block + at] = from[at];
  }
}

// Napkin: sizeof(From) bytes per element and term, sizeof(To) per element; bound by memory. A part
// has `block` elements. Sums run in member order.
template <class From, class To>
__global__ void sum_parts(To* target, Sends sends, int terms, std::int64_t block, unsigned pieces,
                          bool packed, bool accumulate) {
  constexpr int N = kCommonPack<From, To>;
  const std::int64_t part = blockIdx.x / pieces;
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x % pieces) * kThreads + threadIdx.x) * N;
  if (at >= block) return;
  with_whole(packed && block - at >= N, [&](auto whole) {
    const auto load = [&](int term, float(&values)[N]) {
      const auto* send = reinterpret_cast<const From*>(sends.data[part + term]);
      load_values(whole, send + at, block - at, values);
    };
    float sums[N];
    load(0, sums);
#pragma unroll 4
    for (int term = 1; term < terms; ++term) {
      float values[N];
      load(term, values);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[i];
    }
    store_values(whole, target + part * block + at, block - at, sums, accumulate);
  });
}

// One pair of operands, as one member receives it.
struct Pair {
  View target;
  Dtype from = Dtype::f32;
  Sends sends{};
  std::int64_t parts = 1, terms = 1;
  std::int64_t block = 0;  // elements of a part
};

// Whether all parts and all their terms begin at multiples of 16 bytes.
bool packs(const Pair& pair) {
  const auto aligned = [](const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  };
  const std::byte* const* first = pair.sends.data;
  const std::int64_t bytes = pair.block * dtype_bytes(pair.target.dtype);
  return aligned(pair.target.data) && (pair.parts == 1 || bytes % 16 == 0) &&
         std::all_of(first, first + std::max(pair.parts, pair.terms), aligned);
}

template <class Unit>
void copy(const Pair& pair, Stream stream) {
  const std::int64_t units =
      div_exact(pair.block * dtype_bytes(pair.from), static_cast<std::int64_t>(sizeof(Unit)));
  const std::int64_t pieces = div_ceil(units, kThreads * kEach);
  launch(copy_parts<Unit>, grid_of(pair.parts * pieces), kThreads, 0, stream,
         elements<Unit>(pair.target), pair.sends, units, static_cast<unsigned>(pieces));
}

void receive_pair(const Pair& pair, Stream stream) {
  if (pair.terms == 1 && pair.from == pair.target.dtype && !accumulates(pair.target)) {
    const bool whole = pair.block * dtype_bytes(pair.from) % 16 == 0;
    if (whole && packs(pair)) return copy<uint4>(pair, stream);
    if (dtype_bytes(pair.from) == 4) return copy<std::uint32_t>(pair, stream);
    return copy<std::uint16_t>(pair, stream);
  }
  with_float_type(pair.from, [&](auto of_send) {
    with_float_type(pair.target.dtype, [&](auto of_target) {
      using From = decltype(of_send);
      using To = decltype(of_target);
      const std::int64_t pieces = div_ceil(pair.block, kThreads * kCommonPack<From, To>);
      launch(sum_parts<From, To>, grid_of(pair.parts * pieces), kThreads, 0, stream,
             elements<To>(pair.target), pair.sends, static_cast<int>(pair.terms), pair.block,
             static_cast<unsigned>(pieces), packs(pair), accumulates(pair.target));
    });
  });
}

template <class Collective>
void receive_all(const Collective& op, std::int64_t mine,
                 std::span<const std::span<const View>> views, Stream stream) {
  constexpr bool kReduces =
      std::is_same_v<Collective, ReduceScatter> || std::is_same_v<Collective, AllReduce>;
  constexpr bool kCuts =
      std::is_same_v<Collective, AllToAll> || std::is_same_v<Collective, ReduceScatter>;
  static_assert(kReduces || std::is_same_v<Collective, AllToAll> ||
                std::is_same_v<Collective, AllGather> || std::is_same_v<Collective, Exchange>);
  const std::int64_t members = std::ssize(views);
  FPDT_ASSERT(members <= kMembersMost);
  const std::span<const View> own = views[static_cast<std::size_t>(mine)];
  const std::size_t pairs = op.receive.size();
  FPDT_ASSERT(op.send.size() == pairs && own.size() >= 2 * pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    Pair pair;
    pair.target = own[pairs + i];
    pair.from = own[i].dtype;
    if (!std::is_same_v<Collective, Exchange>) (kReduces ? pair.terms : pair.parts) = members;
    pair.block = div_exact(pair.target.elements, pair.parts);
    const std::int64_t first = kCuts ? mine * pair.block : 0;
    const auto take = [&](std::int64_t member, std::int64_t place) {
      const View& send = views[static_cast<std::size_t>(member)][i];
      FPDT_ASSERT(send.dtype == pair.from && first + pair.block <= send.elements);
      pair.sends.data[place] = send.data + first * dtype_bytes(send.dtype);
    };
    if constexpr (std::is_same_v<Collective, Exchange>) {
      take(source_of(op.hop, mine, members), 0);
    } else {
      for (std::int64_t member = 0; member < members; ++member) take(member, member);
    }
    receive_pair(pair, stream);
  }
}

}  // namespace

void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views,
             Stream stream) {
  FPDT_ASSERT(is_collective(body));
  std::visit(
      [&](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (requires { op.group; }) receive_all<Op>(op, mine, views, stream);
      },
      body);
}

}  // namespace fpdt::cuda
