// S3xx, S404 to S407 and S604: versions, races and shared bytes, over the whole expansion.
//
// Ops are visited in issue order with one vector clock per lane: clock[k] is the latest position of
// lane k that is known to be complete before the op. Lanes are FIFO, so an access needs to know one
// position per lane about earlier ones. A slot remembers the version it holds, the pieces of rows
// with their last write, the last access of each lane, and the accesses that any write of its
// version must come after (those of the previous version, and of every slot that shares its bytes).
#include <algorithm>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/schedule/expand.h"
#include "fpdt/schedule/lasting.h"
#include "fpdt/schedule/text.h"
#include "fpdt/schedule/verify/overlap.h"
#include "fpdt/schedule/verify/parts.h"
#include "fpdt/schedule/verify/pieces.h"

namespace fpdt {
namespace {

// The most pieces of rows to visit in all. A hostile schedule, whose ops each write one row and
// read all rows, would take hours; the planner's need some ten million.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 27;

// Only the first failure of a kind at one place is reported, since a wrong op fails in each call.
constexpr std::int64_t kMostFailures = 10000;

struct Slot {
  std::int64_t version = -1;  // the version held now; -1: none
  std::int64_t newest = -1;   // the newest version ever begun here
  std::uint64_t accesses = 0;
  std::vector<Piece> pieces;  // disjoint, by row
};

// Clocks of awaited ops, for the last calls of each block; edges are resolved against them.
class Awaited {
 public:
  explicit Awaited(const Program& program)
      : lanes_(program.lanes.size()), recent_(program.calls_back()) {
    for (const PlainBlock& block : program.blocks) slot_of_.emplace_back(block.ops.size(), -1);
    for (const PlainBlock& block : program.blocks) {
      for (const After& after : block.after) slot_of_[index(after.block)][index(after.op)] = 0;
    }
    for (std::size_t b = 0; b < slot_of_.size(); ++b) {
      std::int32_t count = 0;
      for (std::int32_t& slot : slot_of_[b]) slot = slot < 0 ? -1 : count++;
      const auto calls = index(program.blocks[b].calls_back) + 1;
      rings_.push_back(
          {index(count) * lanes_, calls, std::vector<Position>(calls * index(count) * lanes_)});
    }
  }

  void begin(const Call& call) {
    running_ = call.block;
    recent_.begin(call);
  }
  // Where the running call's op stores its clock; null when no op awaits it.
  Position* clock(std::size_t op) {
    const std::int32_t slot = slot_of_[index(running_)][op];
    if (slot < 0) return nullptr;
    Ring& ring = rings_[index(running_)];
    return &ring.clocks[ring.first(recent_.latest(running_)) + index(slot) * lanes_];
  }
  // The clock of an awaited op; null when there was no such call.
  [[nodiscard]] const Position* clock(const After& after) const {
    const Ring& ring = rings_[index(after.block)];
    const std::int64_t call = recent_.awaited(after);
    if (call < 0) return nullptr;
    const auto slot = index(slot_of_[index(after.block)][index(after.op)]);
    return &ring.clocks[ring.first(call) + slot * lanes_];
  }

 private:
  struct Ring {
    std::size_t width;  // positions of one call
    std::size_t kept;   // calls kept
    std::vector<Position> clocks;

    [[nodiscard]] std::size_t first(std::int64_t call) const { return index(call) % kept * width; }
  };

  std::size_t lanes_;
  std::vector<std::vector<std::int32_t>> slot_of_;  // [block][op], -1: never awaited
  std::vector<Ring> rings_;
  RecentCalls recent_;
  std::int32_t running_ = -1;  // the block
};

class OrderCheck {
 public:
  OrderCheck(const Program& program, const Overlaps& overlaps, Findings& findings)
      : program_(program),
        schedule_(*program.schedule),
        overlaps_(overlaps),
        findings_(findings),
        lasting_(schedule_),
        lanes_(program.lanes.size()),
        expansion_(program),
        awaited_(program),
        clocks_(lanes_ * lanes_, -1),
        next_(lanes_, 0),
        checked_(overlaps.other.size(), 0) {
    for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      first_slot_.push_back(slots_.size());
      for (std::int64_t i = 0; i < buffer.slots; ++i) {
        slots_.emplace_back();
        const std::int64_t full = buffer.role == Role::input
                                      ? buffer.rows()
                                      : lasting_.of(static_cast<BufferIndex>(b), i);
        if (full == 0) continue;
        slots_.back().version = slots_.back().newest = i;
        slots_.back().pieces.push_back({0, full, 0, -1, false, false});
      }
    }
    last_.assign(slots_.size() * lanes_, -1);
    before_ = last_;
  }

  // Returns true at the end of the list, false when it stopped at too many findings or pieces.
  bool run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      if (findings_.full()) return false;
      expansion_.begin(call);
      awaited_.begin(call);
      begins_.insert(begins_.end(), next_.begin(), next_.end());
      begun_.push_back(call.block);
      const PlainBlock& block = program_.blocks[index(call.block)];
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        step(block.ops[i], i);
        if (failures_ > kMostFailures) return false;
        if (pieces_ <= kMostPieces) continue;
        findings_.add("S112", place_of(schedule_.blocks[index(call.block)], *op_->op),
                      "rows are cut into more pieces than the verifier follows");
        return false;
      }
    }
    return true;
  }

  // S604: at the end of the step, the state of the next step and the outputs are whole.
  void check_end() const {
    for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      for (std::int64_t i = 0; i < buffer.slots; ++i) {
        const std::int64_t wanted = buffer.role == Role::output
                                        ? buffer.rows()
                                        : lasting_.of(static_cast<BufferIndex>(b), i);
        if (written_rows(slots_[first_slot_[b] + index(i)].pieces) >= wanted) continue;
        findings_.add("S604", "buffers." + buffer.name,
                      fmt::format("slot {} is not whole when the step ends", i));
      }
    }
  }
  // An evaluation writes some output, its loss.
  void check_result() const {
    for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      if (buffer.role != Role::output) continue;
      if (written_rows(slots_[first_slot_[b]].pieces) >= buffer.rows()) return;
    }
    findings_.add("S604", "evaluate", "no output is whole when the evaluation ends");
  }

 private:
  void step(const PlainOp& op, std::size_t number) {
    op_ = &op;
    clock_ = &clocks_[index(op.lane) * lanes_];
    for (const After& after : op.after) {
      const Position* other = awaited_.clock(after);
      if (other == nullptr) continue;
      for (std::size_t k = 0; k < lanes_; ++k) clock_[k] = std::max(clock_[k], other[k]);
    }
    position_ = next_[index(op.lane)]++;
    clock_[op.lane] = position_;
    for (const PlainUse& use : op.uses) {
      if (use.access == Access::read) visit(use);
    }
    for (const PlainUse& use : op.uses) {
      if (use.access != Access::read) visit(use);
    }
    if (Position* kept = awaited_.clock(number)) std::copy_n(clock_, lanes_, kept);
  }

  void visit(const PlainUse& use) {
    use_ = &use;
    version_ = expansion_.version(use);
    slot_ = first_slot_[index(use.buffer)] +
            index(slot_of(version_, schedule_.buffers[index(use.buffer)].slots));
    switch (use.access) {
      case Access::read:
        read();
        break;
      case Access::accumulate:
        accumulate();
        break;
      case Access::write:
      case Access::scratch:
        write();
        break;
    }
    ++slots_[slot_].accesses;
    last_[slot_ * lanes_ + index(op_->lane)] = position_;
  }

  [[nodiscard]] bool holds(const Slot& slot) const {
    return slot.version == version_ && version_ >= 0;
  }
  [[nodiscard]] bool ordered(const Piece& piece) const {
    return clock_[piece.lane] >= piece.position;
  }
  // The first lane with an access in `row` that the op does not know to be complete; empty: none.
  [[nodiscard]] std::optional<std::size_t> unordered(const Position* row) const {
    for (std::size_t k = 0; k < lanes_; ++k) {
      if (clock_[k] < row[k]) return k;
    }
    return std::nullopt;
  }

  void read() {
    Slot& slot = slots_[slot_];
    if (!holds(slot)) return absent(slot, "S301");
    const std::int64_t first = use_->row_first;
    const std::int64_t end = first + use_->rows;
    if (slot.pieces.size() == 1) {
      Piece& piece = slot.pieces.front();
      if (piece.first <= first && end <= piece.end && !piece.scratch) {
        if (!ordered(piece)) fail("S304", "is not ordered after its write by", name(piece));
        if (!piece.read) mark_read(slot.pieces, first, end);
        return;
      }
    }
    std::int64_t reached = first;
    bool all_read = true;
    for (std::size_t i = piece_at(slot.pieces, first); i < slot.pieces.size(); ++i) {
      const Piece& piece = slot.pieces[i];
      if (piece.first >= end || piece.first > reached || piece.scratch) break;
      if (!ordered(piece)) fail("S304", "is not ordered after its write by", name(piece));
      all_read = all_read && piece.read;
      reached = piece.end;
      charge(slot, false);
    }
    if (reached < end) return fail("S303", fmt::format("finds row {} unwritten", reached));
    if (all_read) return;
    const std::size_t before = slot.pieces.size();
    mark_read(slot.pieces, first, end);
    charge(slot, slot.pieces.size() != before);
  }

  // Counts an access of one piece, or of all where those behind it have moved.
  void charge(const Slot& slot, bool moved) { pieces_ += moved ? std::ssize(slot.pieces) : 1; }

  void accumulate() {
    Slot& slot = slots_[slot_];
    if (!holds(slot)) return absent(slot, "S306");
    const std::size_t before = slot.pieces.size();
    const auto [begin, count] = isolate(slot.pieces, use_->row_first, use_->row_first + use_->rows);
    charge(slot, slot.pieces.size() != before || count > 1);
    std::int64_t reached = use_->row_first;
    for (std::size_t i = begin; i < begin + count; ++i) {
      Piece& piece = slot.pieces[i];
      if (piece.first == reached && !piece.scratch) reached = piece.end;
      if (piece.read)
        fail("S307", fmt::format("follows a read of rows {}:{}", piece.first, piece.end));
      if (own(piece)) {
        fail("S311", "touches rows that the same op writes");
      } else if (!ordered(piece)) {
        fail("S308", "is not ordered after", name(piece));
      }
      piece.lane = op_->lane;
      piece.position = position_;
    }
    if (reached != use_->row_first + use_->rows) {
      return fail("S306", fmt::format("finds row {} unwritten", reached));
    }
    merge(slot.pieces, begin, count);
  }

  void write() {
    Slot& slot = slots_[slot_];
    if (!holds(slot)) {
      if (!begin(slot)) return;
    } else if (const auto lane = unordered(&before_[slot_ * lanes_])) {
      fail("S309", "is not ordered after the version before, used by",
           name(*lane, before_[slot_ * lanes_ + *lane]));
    }
    const std::int64_t first = use_->row_first;
    const std::int64_t end = first + use_->rows;
    const auto at = slot.pieces.begin() + static_cast<std::ptrdiff_t>(piece_at(slot.pieces, first));
    charge(slot, at != slot.pieces.end());
    if (at != slot.pieces.end() && at->first < end) {
      return fail(own(*at) ? "S311" : "S305",
                  fmt::format("writes rows {}:{} again, after", std::max(at->first, first),
                              std::min(at->end, end)),
                  name(*at));
    }
    const bool scratch = use_->access == Access::scratch;
    slot.pieces.insert(at, {first, end, op_->lane, position_, false, scratch});
  }

  // Begins a write of another version: the slot's old contents end here, and slots that share its
  // bytes are destroyed.
  bool begin(Slot& slot) {
    if (version_ < 0 || version_ <= slot.newest) {
      const bool destroyed = version_ >= 0 && version_ == slot.newest;
      fail(destroyed ? "S405" : "S310",
           destroyed
               ? std::string("continues a version that was overwritten by what shares its bytes")
               : fmt::format("follows version {} in its slot", slot.newest));
      return false;
    }
    Position* const last = &last_[slot_ * lanes_];
    Position* const before = &before_[slot_ * lanes_];
    if (last[op_->lane] == position_ && traits(op_->op->body).in_place == InPlace::no) {
      fail("S311", "replaces a version that the same op uses");
    }
    if (const auto lane = unordered(last)) {
      fail("S309", "is not ordered after the version before, used by", name(*lane, last[*lane]));
    }
    std::copy_n(last, lanes_, before);
    for (std::size_t i = overlaps_.begin[slot_]; i < overlaps_.begin[slot_ + 1]; ++i) {
      const std::size_t other = overlaps_.other[i];
      if (slots_[other].accesses != checked_[i]) destroy(other, i);
    }
    slot.version = slot.newest = version_;
    slot.pieces.clear();
    return true;
  }

  void destroy(std::size_t other, std::size_t pair) {
    const Position* last = &last_[other * lanes_];
    Position* const before = &before_[slot_ * lanes_];
    if (last[op_->lane] == position_) {
      fail("S407", fmt::format("shares bytes with {}, which the same op uses", slot_name(other)));
    }
    if (const auto lane = unordered(last)) {
      fail(
          "S404",
          fmt::format("is not ordered after {}, which shares its bytes, used by", slot_name(other)),
          name(*lane, last[*lane]));
    }
    for (std::size_t k = 0; k < lanes_; ++k) before[k] = std::max(before[k], last[k]);
    slots_[other].version = -1;
    slots_[other].pieces.clear();
    checked_[pair] = slots_[other].accesses;
  }

  [[nodiscard]] bool own(const Piece& piece) const {
    return piece.lane == op_->lane && piece.position == position_;
  }

  // Reports that the slot does not hold the wanted version: it was never written, is older than the
  // held one, or was destroyed.
  void absent(const Slot& slot, std::string_view never) {
    if (version_ > slot.newest || version_ < 0) {
      fail(never, "reads a version that was never written");
    } else if (version_ == slot.newest) {
      fail("S405", "reads a version that was overwritten by what shares its bytes");
    } else {
      fail("S302", fmt::format("finds newer version {} in its slot", slot.newest));
    }
  }

  void fail(std::string_view code, const std::string& what, const std::string& other = "") {
    ++failures_;
    const Block& block = schedule_.blocks[index(begun_.back())];
    const Call& call = expansion_.call();
    findings_.add(
        code, place_of(block, *op_->op),
        fmt::format("{} of version {} of {} {}{}{} (layer {}, micro_batch {}, segment {})", verb(),
                    version_, schedule_.buffers[index(use_->buffer)].name, what,
                    other.empty() ? "" : " ", other, call.layer, call.micro_batch, call.segment));
  }

  [[nodiscard]] std::string_view verb() const {
    switch (use_->access) {
      case Access::read:
        return "read";
      case Access::accumulate:
        return "accumulate";
      case Access::write:
        return "write";
      case Access::scratch:
        return "scratch use";
    }
    return "";
  }

  [[nodiscard]] std::string name(const Piece& piece) const {
    return name(index(piece.lane), piece.position);
  }

  // The op at a position of a lane.
  [[nodiscard]] std::string name(std::size_t lane, Position position) const {
    if (position < 0) return "the start";
    std::size_t call = begun_.size() - 1;
    while (begins_[call * lanes_ + lane] > position) --call;
    const PlainBlock& block = program_.blocks[index(begun_[call])];
    for (const PlainOp& op : block.ops) {
      if (index(op.lane) == lane && op.lane_position == position - begins_[call * lanes_ + lane]) {
        return place_of(schedule_.blocks[index(begun_[call])], *op.op);
      }
    }
    return "";
  }

  [[nodiscard]] std::string slot_name(std::size_t slot) const {
    const auto after = std::upper_bound(first_slot_.begin(), first_slot_.end(), slot);
    const auto buffer = static_cast<std::size_t>(after - first_slot_.begin()) - 1;
    return fmt::format("slot {} of {}", slot - first_slot_[buffer], schedule_.buffers[buffer].name);
  }

  const Program& program_;
  const Schedule& schedule_;
  const Overlaps& overlaps_;
  Findings& findings_;
  LastingRows lasting_;
  std::size_t lanes_;
  Expansion expansion_;
  Awaited awaited_;
  std::vector<Position> clocks_;         // [lane][lane], after the last op of each lane
  std::vector<Position> next_;           // position of the next op of each lane
  std::vector<std::size_t> first_slot_;  // of each buffer
  std::vector<Slot> slots_;
  std::vector<Position> last_;    // [slot][lane], latest access
  std::vector<Position> before_;  // [slot][lane], what writes of the held version come after
  std::vector<std::uint64_t>
      checked_;  // [overlapping pair]: accesses of the other when last destroyed
  std::vector<std::int32_t> begun_;  // block of each call so far
  std::vector<Position> begins_;     // [call][lane], positions where calls began
  const PlainOp* op_ = nullptr;      // the op of the current access
  const PlainUse* use_ = nullptr;
  Position* clock_ = nullptr;
  Position position_ = 0;
  std::int64_t pieces_ = 0;    // visited so far
  std::int64_t failures_ = 0;  // so far, unreported repetitions included
  std::int64_t version_ = 0;
  std::size_t slot_ = 0;
};

}  // namespace

void check_order(const Schedule& schedule, Findings& findings) {
  const std::optional<Overlaps> overlaps = overlaps_of(schedule);
  if (!overlaps) {
    findings.add("S406", "buffers", "too many slots share bytes");
    return;
  }
  const Program program(schedule);
  {
    OrderCheck train(program, *overlaps, findings);
    const bool ended = train.run(schedule.train);
    if (ended && !schedule.train.empty()) train.check_end();
  }
  OrderCheck evaluate(program, *overlaps, findings);
  const bool ended = evaluate.run(schedule.evaluate);
  if (ended && findings.empty() && !schedule.evaluate.empty()) evaluate.check_result();
}

}  // namespace fpdt
