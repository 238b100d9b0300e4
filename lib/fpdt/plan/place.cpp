// A bound from cliques of conflicting buffers, then lowest-fit packing over several orders.
#include "fpdt/plan/place.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "fpdt/plan/lives.h"

namespace fpdt {
namespace {

// The buffers of one space, with the data that packing needs.
struct Packing {
  const Conflicts& conflicts;
  std::vector<std::size_t> items;   // buffers of the space
  std::vector<std::int64_t> sizes;  // of every buffer

  [[nodiscard]] std::int64_t bytes(std::size_t item) const { return sizes[item]; }
  [[nodiscard]] bool apart(std::size_t a, std::size_t b) const { return conflicts.apart(a, b); }

  // Places each item from order[from] on, in that order, at the lowest offset that conflicts with
  // no other item; earlier items keep their offsets. Stops when the top exceeds `most`. Returns the
  // top.
  std::int64_t pack(const std::vector<std::size_t>& order, std::size_t from, std::int64_t most,
                    std::vector<std::int64_t>& offsets) const {
    std::vector<std::pair<std::int64_t, std::size_t>> placed;  // ascending offsets
    std::int64_t top = 0;
    for (std::size_t i = 0; i < from; ++i) {
      placed.push_back({offsets[order[i]], order[i]});
      top = std::max(top, offsets[order[i]] + bytes(order[i]));
    }
    std::sort(placed.begin(), placed.end());
    for (std::size_t i = from; i < order.size() && top <= most; ++i) {
      const std::size_t item = order[i];
      std::int64_t at = 0;
      for (const auto& [begin, other] : placed) {
        if (!apart(item, other)) continue;
        if (begin - at >= bytes(item)) break;
        at = std::max(at, begin + bytes(other));
      }
      offsets[item] = at;
      top = std::max(top, at + bytes(item));
      const std::pair entry{at, item};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), entry), entry);
    }
    return top;
  }
};

// The bytes of a heavy set of buffers that may not share in pairs. Grows a set from every buffer,
// always by the heaviest that fits.
Bytes bound_bytes(const Packing& packing) {
  std::vector<std::size_t> order = packing.items;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return packing.bytes(a) > packing.bytes(b);
  });
  std::int64_t most = 0;
  std::vector<std::size_t> set;
  for (const std::size_t seed : order) {
    set.assign(1, seed);
    std::int64_t bytes = packing.bytes(seed);
    for (const std::size_t item : order) {
      const bool fits = std::all_of(set.begin(), set.end(), [&](std::size_t other) {
        return other != item && packing.apart(item, other);
      });
      if (!fits) continue;
      set.push_back(item);
      bytes += packing.bytes(item);
    }
    most = std::max(most, bytes);
  }
  return Bytes{most};
}

// Packs by size, then tries orders in which an item that reached too high comes earlier; keeps the
// best, and its offsets.
void pack_best(const Packing& packing, SpaceUse& use, std::vector<std::int64_t>& best_offsets) {
  constexpr int kTries = 150;
  std::vector<std::size_t> order = packing.items;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool sa = packing.conflicts.shares(a);
    const bool sb = packing.conflicts.shares(b);
    return sa != sb ? !sa : packing.bytes(a) > packing.bytes(b);
  });
  std::vector<std::int64_t> offsets = best_offsets;
  std::vector<std::size_t> best = order;
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  use.arena = Bytes{packing.pack(best, 0, kAny, best_offsets)};
  std::uint32_t random = 1;  // a fixed sequence: placement is deterministic
  for (int attempt = 0; attempt < kTries && use.arena > use.bound; ++attempt) {
    order = best;
    const auto next = [&random](std::size_t n) {
      random = random * 1664525U + 1013904223U;
      return static_cast<std::ptrdiff_t>((random >> 8U) % n);
    };
    // Moves one of the items that reach the top third to a random earlier place.
    std::vector<std::ptrdiff_t> high;
    for (std::size_t i = 1; i < order.size(); ++i) {
      const std::int64_t end = best_offsets[order[i]] + packing.bytes(order[i]);
      if (end > use.arena.value / 3 * 2) high.push_back(static_cast<std::ptrdiff_t>(i));
    }
    if (high.empty()) break;
    const std::ptrdiff_t from = high[static_cast<std::size_t>(next(high.size()))];
    const std::ptrdiff_t to = next(static_cast<std::size_t>(from));
    std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    offsets = best_offsets;
    const std::int64_t top =
        packing.pack(order, static_cast<std::size_t>(to), use.arena.value, offsets);
    if (top > use.arena.value) continue;
    use.arena = Bytes{top};
    best = order;
    best_offsets = offsets;
  }
}

// Packs the buffers that are used.
Placement packed(const Program& program, const std::vector<bool>& used,
                 std::vector<std::int64_t>& offsets) {
  const std::vector<Buffer>& buffers = program.schedule->buffers;
  const Conflicts conflicts(program);
  const std::array<Bytes, 3> live = live_bytes(program);
  offsets.assign(buffers.size(), 0);
  Placement placement;
  for (const MemorySpace space :
       {MemorySpace::device, MemorySpace::host_pinned, MemorySpace::host}) {
    const auto number = static_cast<std::size_t>(space);
    Packing packing{conflicts, {}, {}};
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      packing.sizes.push_back(buffers[i].bytes().value);
      if (buffers[i].space == space && used[i]) packing.items.push_back(i);
    }
    SpaceUse& use = placement.space[number];
    use.live = live[number];
    use.bound = std::max(use.live, bound_bytes(packing));
    pack_best(packing, use, offsets);
    if (packing.items.empty()) use.arena = Bytes{0};
  }
  return placement;
}

// Whether a buffer lasts.
std::vector<bool> lasting(const std::vector<Buffer>& buffers) {
  std::vector<bool> some;
  for (const Buffer& buffer : buffers) some.push_back(buffer.role != Role::temporary);
  return some;
}

// Gives operands of ops new numbers of buffers.
struct Renumber : FieldVisitor<Renumber> {
  explicit Renumber(const std::vector<BufferIndex>& to) : now(to) {}
  const std::vector<BufferIndex>& now;

  void read(std::string_view, Operand& operand) const {
    if (operand.present()) operand.buffer = now[index(operand.buffer)];
  }
  void target(std::string_view field, Target& target) const { read(field, target.operand); }
};

}  // namespace

Placement place(Schedule& schedule) {
  std::vector<std::int64_t> offsets;
  const std::vector<bool> all(schedule.buffers.size(), true);
  const Placement placement = packed(Program(schedule), all, offsets);
  for (std::size_t i = 0; i < offsets.size(); ++i) schedule.buffers[i].offset = offsets[i];
  return placement;
}

Placement placement_of(const Program& program) {
  std::vector<bool> used = lasting(program.schedule->buffers);
  for (const PlainBlock& block : program.blocks) {
    for (const PlainUse& use : block.uses) used[index(use.buffer)] = true;
  }
  std::vector<std::int64_t> offsets;
  return packed(program, used, offsets);
}

void leave_out_unused(Schedule& schedule) {
  std::vector<bool> used = lasting(schedule.buffers);
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      for_each_operand(op.body, [&](std::string_view, const Operand& one, Access) {
        used[index(one.buffer)] = true;
      });
    }
  }
  std::vector<BufferIndex> now(used.size(), -1);
  std::vector<Buffer> left;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    now[i] = static_cast<BufferIndex>(left.size());
    left.push_back(std::move(schedule.buffers[i]));
  }
  schedule.buffers = std::move(left);
  for (Block& block : schedule.blocks) {
    std::erase_if(block.advance, [&](const auto& one) { return now[index(one.first)] < 0; });
    for (auto& one : block.advance) one.first = now[index(one.first)];
    for (Op& op : block.ops) {
      std::visit([&](auto& body) { std::decay_t<decltype(body)>::fields(body, Renumber(now)); },
                 op.body);
    }
  }
  for (Feed& feed : schedule.feeds) feed.buffer = now[index(feed.buffer)];
  for (State& state : schedule.states) state.buffer = now[index(state.buffer)];
}

}  // namespace fpdt
