// Looks up and replaces rows of versions.
#include "fpdt/schedule/verify/origin_store.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

constexpr std::int64_t kNeverMeet = std::numeric_limits<std::int64_t>::max();

}  // namespace

OriginStore::OriginStore(const Schedule& schedule)
    : schedule_(schedule),
      walked_(schedule.blocks.size()),
      program_(schedule),
      expansion_(program_) {
  std::size_t slots = 0;
  for (const Buffer& one : schedule.buffers) {
    first_slot_.push_back(slots);
    slots += index(one.slots);
  }
  slots_.resize(slots);
  for (const Block& block : schedule.blocks) {
    std::map<BufferIndex, std::vector<Way>> found;
    for (const Op& op : block.ops) {
      for (const Use& use : operands(op.body)) {
        Version from = use.operand.version;
        const std::int64_t offset = std::exchange(from.offset, 0);
        std::vector<Way>& ways = found[use.operand.buffer];
        auto way = std::find_if(ways.begin(), ways.end(),
                                [&](const Way& one) { return one.from == from; });
        if (way == ways.end()) way = ways.insert(way, {use.operand.buffer, from, {}});
        const std::int64_t slot = slot_of(offset, buffer(use.operand.buffer).slots);
        const auto place = std::lower_bound(way->offsets.begin(), way->offsets.end(), slot);
        if (place == way->offsets.end() || *place != slot) way->offsets.insert(place, slot);
      }
    }
    auto& pairs = ways_.emplace_back();
    for (const auto& [number, ways] : found) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) pairs.emplace_back(ways[i], ways[j]);
      }
    }
  }
}

void OriginStore::restart() {
  expansion_ = Expansion(program_);
  std::fill(slots_.begin(), slots_.end(), Slot{});
}

void OriginStore::begin_with(BufferIndex number, std::int64_t slot, std::int64_t row,
                             const OriginRuns& runs) {
  Slot& one = slots_[first_slot_[index(number)] + index(slot)];
  one.version = slot;
  one.pieces.push_back({row, row + count_rows(runs), pool_.number(runs)});
  std::sort(one.pieces.begin(), one.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.first < b.first; });
}

void OriginStore::begin(const Call& call) {
  expansion_.begin(call);
  ++number_;
}

OriginStore::Slot& OriginStore::slot_at(BufferIndex number, std::int64_t version) {
  return slots_[first_slot_[index(number)] + index(slot_of(version, buffer(number).slots))];
}

std::vector<std::int64_t> OriginStore::distances() const {
  std::vector<std::int64_t> all;
  for (const auto& [a, b] : ways_[index(expansion_.call().block)]) {
    const std::int64_t apart = value(b.buffer, b.from) - value(a.buffer, a.from);
    const bool meet = std::any_of(b.offsets.begin(), b.offsets.end(), [&](std::int64_t offset) {
      const std::int64_t slot = slot_of(offset + apart, buffer(a.buffer).slots);
      return std::binary_search(a.offsets.begin(), a.offsets.end(), slot);
    });
    all.push_back(meet ? apart : kNeverMeet);
  }
  return all;
}

bool OriginStore::repeat() {
  Walked& block = walked();
  std::vector<std::int64_t> now = distances();
  const bool same =
      block.once && now == block.distances &&
      std::all_of(block.found.begin(), block.found.end(), [&](const Held& held) {
        const std::int64_t version = value(held.buffer, held.version);
        const Slot& slot = slot_at(held.buffer, version);
        return slot.version == version ? slot.pieces == held.pieces : held.pieces.empty();
      });
  walking_ = !same;
  if (walking_) {
    block = {true, std::move(now), {}, {}};
    return false;
  }
  for (const Held& held : block.left) {
    const std::int64_t version = value(held.buffer, held.version);
    Slot& slot = slot_at(held.buffer, version);
    slot.version = version;
    slot.pieces = held.pieces;
  }
  return true;
}

void OriginStore::end() {
  if (!walking_) return;
  for (Held& held : walked().left) {
    held.pieces = slot_at(held.buffer, value(held.buffer, held.version)).pieces;
  }
}

// The slot of an operand. What it held before the call is part of what the call finds.
OriginStore::Slot& OriginStore::find(const Operand& operand, Access access) {
  const std::int64_t version = value(operand.buffer, operand.version);
  Slot& slot = slot_at(operand.buffer, version);
  const bool holds = slot.version == version;
  if (!holds && access == Access::write) return slot;
  if (!holds || slot.seen != number_) {
    walked().found.push_back(
        {operand.buffer, operand.version, holds ? slot.pieces : std::vector<Piece>{}});
  }
  if (holds) slot.seen = number_;
  return slot;
}

OriginRuns OriginStore::read(const Operand& operand) {
  const std::int64_t rows = rows_of(operand);
  const Slot& slot = find(operand, Access::read);
  if (slot.version != value(operand.buffer, operand.version)) return unknown_rows(rows);
  const std::int64_t end = operand.row_first + rows;
  OriginRuns runs;
  std::int64_t reached = operand.row_first;
  for (const Piece& piece : slot.pieces) {
    if (piece.end <= reached || piece.first >= end) continue;
    const OriginRuns list = pool_.list(piece.list, piece.end - piece.first);
    if (piece.first == operand.row_first && piece.end == end) return list;
    if (piece.first > reached) append(runs, {.rows = piece.first - reached});
    const std::int64_t from = std::max(reached, piece.first);
    reached = std::min(end, piece.end);
    for (const OriginRun& run : slice(list, from - piece.first, reached - from)) append(runs, run);
  }
  if (reached < end) append(runs, {.rows = end - reached});
  return runs;
}

void OriginStore::write(const Operand& operand, const OriginRuns& runs) {
  const std::int64_t version = value(operand.buffer, operand.version);
  Slot& slot = find(operand, Access::write);
  if (slot.version != version) {
    slot.version = version;
    slot.pieces.clear();
    slot.seen = number_;
  }
  const std::int64_t first = operand.row_first;
  const std::int64_t end = first + rows_of(operand);
  std::vector<Piece> pieces;
  const auto keep = [&](const Piece& piece, std::int64_t from, std::int64_t to) {
    if (from >= to) return;
    const bool whole = from == piece.first && to == piece.end;
    pieces.push_back({from, to,
                      whole ? piece.list
                            : pool_.number(slice(pool_.list(piece.list, piece.end - piece.first),
                                                 from - piece.first, to - from))});
  };
  for (const Piece& piece : slot.pieces) keep(piece, piece.first, std::min(piece.end, first));
  pieces.push_back({first, end, pool_.number(runs)});
  for (const Piece& piece : slot.pieces) keep(piece, std::max(piece.first, end), piece.end);
  slot.pieces = std::move(pieces);

  std::vector<Held>& left = walked().left;
  if (slot.changed != number_) {
    slot.changed = number_;
    slot.change = left.size();
    left.emplace_back();
  }
  left[slot.change] = {operand.buffer, operand.version, {}};
}

}  // namespace fpdt
