// A table of slots: the version of each, the last writer, and the last accesses.
#include "fpdt/schedule/hazards.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace fpdt {
namespace {

// The first of pieces by rows that ends beyond a row.
template <class Pieces>
auto first_beyond(Pieces& pieces, std::int64_t row) {
  return std::partition_point(pieces.begin(), pieces.end(),
                              [row](const auto& piece) { return piece.end <= row; });
}

}  // namespace

Hazards::Hazards(const Program& program) : lanes_(program.lanes.size()) {
  for (const Buffer& buffer : program.schedule->buffers) {
    rings_.push_back({slots_.size(), buffer.slots});
    const bool full = buffer.role == Role::state || buffer.role == Role::input;
    for (std::int64_t slot = 0; slot < buffer.slots; ++slot) {
      slots_.emplace_back();
      if (full) slots_.back().version = slot;
    }
  }
  last_.assign(slots_.size() * lanes_, -1);
  before_ = last_;
}

void Hazards::issue(const PlainOp& op, const Expansion& expansion, Position* required) {
  std::fill_n(required, lanes_, Position{-1});
  touched_.clear();
  for (const PlainUse& use : op.uses) {
    const std::int64_t version = expansion.version(use);
    const Ring& ring = rings_[index(use.buffer)];
    touched_.push_back({version, ring.first_slot + index(slot_of(version, ring.slots))});
    require(use, version, touched_.back().slot, required);
  }
  const auto position = static_cast<Position>(expansion.position(op));
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    touch(op.uses[i], touched_[i].version, touched_[i].slot, op.lane, position);
  }
}

void Hazards::require(const PlainUse& use, std::int64_t version, std::size_t at,
                      Position* required) const {
  const Slot& slot = slots_[at];
  const bool held = slot.version == version;
  if (use.access == Access::read || use.access == Access::accumulate) {
    if (!held) return;
    const std::int64_t end = use.row_first + use.rows;
    const auto meet = [&](const Piece& piece) {
      required[piece.lane] = std::max(required[piece.lane], piece.position);
    };
    if (slot.piece.first < end && slot.piece.end > use.row_first) meet(slot.piece);
    auto piece = first_beyond(slot.pieces, use.row_first);
    for (; piece != slot.pieces.end() && piece->first < end; ++piece) meet(*piece);
    return;
  }
  const Position* accesses = (held ? before_ : last_).data() + at * lanes_;
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    required[lane] = std::max(required[lane], accesses[lane]);
  }
}

void Hazards::touch(const PlainUse& use, std::int64_t version, std::size_t at, std::int32_t lane,
                    Position position) {
  Slot& slot = slots_[at];
  Position* const last = last_.data() + at * lanes_;
  const bool writes = use.access == Access::write || use.access == Access::scratch;
  if (slot.version != version && (writes || gaps_)) {
    slot.version = version;
    slot.piece = {};
    slot.pieces.clear();
    std::copy_n(last, lanes_, before_.data() + at * lanes_);
  }
  last[lane] = std::max(last[lane], position);  // calls may be issued early
  if (use.access != Access::read && slot.version == version) {
    overwrite(slot, {use.row_first, use.row_first + use.rows, lane, position});
  }
}

// From now on `piece` holds its rows; older pieces keep only their other rows.
void Hazards::overwrite(Slot& slot, const Piece& piece) {
  std::vector<Piece>& all = slot.pieces;
  if (all.empty()) {
    const Piece old = slot.piece;
    const bool covered = old.first == old.end || (old.first >= piece.first && old.end <= piece.end);
    slot.piece = covered ? piece : Piece{};
    if (covered) return;
    all.push_back(old);
  }
  const auto begin = first_beyond(all, piece.first);
  const auto end =
      std::find_if(begin, all.end(), [&](const Piece& one) { return one.first >= piece.end; });
  std::array<Piece, 3> now{};
  std::size_t count = 0;
  if (begin != end && begin->first < piece.first) {
    now[count] = *begin;
    now[count++].end = piece.first;
  }
  now[count++] = piece;
  if (begin != end && std::prev(end)->end > piece.end) {
    now[count] = *std::prev(end);
    now[count++].first = piece.end;
  }
  const std::size_t old = std::min(count, static_cast<std::size_t>(end - begin));
  const auto after = std::copy_n(now.begin(), old, begin);
  if (old < count) {
    all.insert(after, now.begin() + old, now.begin() + count);
  } else {
    all.erase(after, end);
  }
}

}  // namespace fpdt
