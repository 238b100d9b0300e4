// Collectives as copies and sums over the members' send operands.
#include "fpdt/runtime/collective.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <variant>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/runtime/bf16.h"
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

constexpr std::int64_t kPiece = 2048;  // elements summed at a time, on the stack
using Piece = std::array<float, kPiece>;

// `count` elements of a view from `first` on.
View part(const View& view, std::int64_t first, std::int64_t count) {
  FPDT_ASSERT(first >= 0 && count >= 0 && first + count <= view.elements);
  return {view.data + first * dtype_bytes(view.dtype), count, view.dtype, view.access};
}

// sum[i] (+)= source[i].
void add_piece(const View& source, bool first, Piece& sum) {
  FPDT_ASSERT(source.dtype != Dtype::i32 && source.elements <= kPiece);
  for (std::int64_t i = 0; i < source.elements; ++i) {
    const float value = source.dtype == Dtype::f32
                            ? reinterpret_cast<const float*>(source.data)[i]
                            : widen(reinterpret_cast<const std::uint16_t*>(source.data)[i]);
    float& target = sum[static_cast<std::size_t>(i)];
    target = first ? value : target + value;
  }
}

void store_piece(const Piece& sum, const View& target) {
  const bool adds = target.access == Access::accumulate;
  FPDT_ASSERT(target.dtype != Dtype::i32 && target.elements <= kPiece);
  for (std::int64_t i = 0; i < target.elements; ++i) {
    const float value = sum[static_cast<std::size_t>(i)];
    if (target.dtype == Dtype::f32) {
      float& element = reinterpret_cast<float*>(target.data)[i];
      element = adds ? element + value : value;
    } else {
      std::uint16_t& element = reinterpret_cast<std::uint16_t*>(target.data)[i];
      element = narrow(adds ? widen(element) + value : value);
    }
  }
}

// target (+)= the sum over all members i of the view of(i).
template <class Of>
void sum_into(const View& target, std::int64_t members, Of&& of) {
  Piece sum;
  for (std::int64_t at = 0; at < target.elements; at += kPiece) {
    const std::int64_t count = std::min(kPiece, target.elements - at);
    for (std::int64_t i = 0; i < members; ++i) add_piece(part(of(i), at, count), i == 0, sum);
    store_piece(sum, part(target, at, count));
  }
}

void copy_into(const View& target, const View& source) {
  FPDT_ASSERT(target.elements == source.elements);
  if (target.dtype == source.dtype && target.access == Access::write) {
    std::memcpy(target.data, source.data, static_cast<std::size_t>(target.bytes()));
  } else {
    sum_into(target, 1, [&source](std::int64_t) { return source; });
  }
}

// One pair of send and receive: gives member `mine` its part of send(i) from every member i.
template <class Body, class Send>
void receive_pair(const Body& op, const View& target, std::int64_t mine, std::int64_t members,
                  Send&& send) {
  static_cast<void>(op);
  if constexpr (std::is_same_v<Body, AllToAll> || std::is_same_v<Body, AllGather>) {
    const std::int64_t block = div_exact(target.elements, members);
    const std::int64_t first = std::is_same_v<Body, AllToAll> ? mine * block : 0;
    for (std::int64_t i = 0; i < members; ++i) {
      copy_into(part(target, i * block, block), part(send(i), first, block));
    }
  } else if constexpr (std::is_same_v<Body, Exchange>) {
    copy_into(target, send(source_of(op.hop, mine, members)));
  } else {
    static_assert(std::is_same_v<Body, ReduceScatter> || std::is_same_v<Body, AllReduce>);
    const std::int64_t first = std::is_same_v<Body, ReduceScatter> ? mine * target.elements : 0;
    sum_into(target, members,
             [&](std::int64_t i) { return part(send(i), first, target.elements); });
  }
}

}  // namespace

Membership membership(const Group& group, std::int64_t rank) {
  const std::int64_t first = group.first.at(rank);
  const std::int64_t mine = group.size == 1 ? 0 : div_exact(rank - first, group.stride);
  FPDT_ASSERT(mine >= 0 && mine < group.size);
  return {first, group.stride, group.size, mine};
}

void add_in_order(const View& target, std::span<const View> sources) {
  sum_into(target, std::ssize(sources),
           [sources](std::int64_t i) { return sources[static_cast<std::size_t>(i)]; });
}

void receive(const Body& body, std::int64_t mine, std::span<const std::span<const View>> views) {
  std::visit(
      [mine, views](const auto& op) {
        using Collective = std::decay_t<decltype(op)>;
        if constexpr (IsCollective<Collective>) {
          const std::span<const View> own = views[static_cast<std::size_t>(mine)];
          const std::size_t pairs = op.receive.size();
          FPDT_ASSERT(op.send.size() == pairs && own.size() >= 2 * pairs);
          for (std::size_t pair = 0; pair < pairs; ++pair) {
            receive_pair(op, own[pairs + pair], mine, std::ssize(views), [&](std::int64_t member) {
              return views[static_cast<std::size_t>(member)][pair];
            });
          }
        } else {
          FPDT_ASSERT(IsCollective<Collective>);
        }
      },
      body);
}

std::int64_t bytes_to_each(const Body& body, std::int64_t members, std::span<const View> views) {
  return std::visit(
      [&](const auto& op) -> std::int64_t {
        using Collective = std::decay_t<decltype(op)>;
        FPDT_ASSERT(IsCollective<Collective>);
        if constexpr (IsCollective<Collective>) {
          std::int64_t bytes = 0;
          for (const View& view : views.first(op.send.size())) bytes += view.bytes();
          return bytes_to_each<Collective>(members, bytes);
        } else {
          return 0;
        }
      },
      body);
}

}  // namespace fpdt
