// A table of slots: the version of each, the last writer, and the last accesses.
#include "fpdt/schedule/hazards.h"

#include <algorithm>

namespace fpdt {
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
    const auto meet = [&](const Piece& piece) {
      if (piece.first >= use.row_first + use.rows || piece.end <= use.row_first) return;
      required[piece.lane] = std::max(required[piece.lane], piece.position);
    };
    meet(slot.piece);
    for (const Piece& piece : slot.others) meet(piece);
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
    slot.others.clear();
    std::copy_n(last, lanes_, before_.data() + at * lanes_);
  }
  last[lane] = position;
  if (use.access != Access::read && slot.version == version) {
    overwrite(slot, {use.row_first, use.row_first + use.rows, lane, position});
  }
}

// From now on `piece` holds its rows; older pieces keep only their other rows.
void Hazards::overwrite(Slot& slot, const Piece& piece) {
  const Piece old = slot.piece;
  slot.piece = piece;
  const bool covered = old.first == old.end || (old.first >= piece.first && old.end <= piece.end);
  if (covered && slot.others.empty()) return;
  if (!covered) slot.others.push_back(old);
  std::size_t kept = 0;
  const std::size_t count = slot.others.size();
  for (std::size_t i = 0; i < count; ++i) {
    Piece left = slot.others[i];
    Piece right = left;
    left.end = std::min(left.end, piece.first);
    right.first = std::max(right.first, piece.end);
    const bool cut = left.first < left.end;
    if (cut) slot.others[kept++] = left;
    if (right.first >= right.end) continue;
    if (cut) {
      slot.others.push_back(right);
    } else {
      slot.others[kept++] = right;
    }
  }
  const auto begin = slot.others.begin();
  slot.others.erase(begin + static_cast<std::ptrdiff_t>(kept),
                    begin + static_cast<std::ptrdiff_t>(count));
}

}  // namespace fpdt
