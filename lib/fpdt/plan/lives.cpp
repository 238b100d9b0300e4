// Finds conflicts by vector clocks over a window of the calls; sums live bytes over all calls.
#include "fpdt/plan/lives.h"

#include <algorithm>
#include <limits>
#include <list>

#include "fpdt/base/assert.h"
#include "fpdt/schedule/call_clocks.h"
#include "fpdt/schedule/depend.h"

namespace fpdt {
namespace {

bool shares(const Buffer& buffer) { return buffer.role == Role::temporary; }

struct Pairs {
  explicit Pairs(std::size_t buffers) : count(buffers), unordered(buffers * buffers, 0) {}
  void meet(std::size_t a, std::size_t b) {
    unordered[a * count + b] = unordered[b * count + a] = 1;
  }

  std::size_t count;
  std::vector<std::uint8_t> unordered;
};

using Position = CallClocks::Position;

// Buffers by when their latest life began, the latest first.
class Begins {
 public:
  explicit Begins(std::size_t buffers) {
    for (std::size_t i = 0; i < buffers; ++i)
      places_.push_back(order_.insert(order_.end(), {i, 0}));
  }

  // Times ascend from 1.
  void begin(std::size_t buffer, std::int64_t time) {
    places_[buffer]->time = time;
    order_.splice(order_.begin(), order_, places_[buffer]);
  }

  // Calls found(buffer) with those whose latest life began after that time.
  template <class Found>
  void for_each_after(std::int64_t time, Found found) const {
    for (auto one = order_.begin(); one != order_.end() && one->time > time; ++one) {
      found(one->buffer);
    }
  }

 private:
  struct Begin {
    std::size_t buffer;
    std::int64_t time;  // 0: none began
  };
  std::list<Begin> order_;
  std::vector<std::list<Begin>::iterator> places_;  // of each buffer
};

// One walk over a call list, with the clocks of every lane.
class Walk {
 public:
  Walk(const Program& program, Pairs& pairs)
      : program_(program),
        pairs_(pairs),
        lanes_(program.lanes.size()),
        expansion_(program),
        clocks_(program, program.calls_back()),
        introduced_(program.blocks.size(), 0),
        last_(pairs.count * lanes_, -1),
        begins_(pairs.count) {
    const std::vector<Buffer>& buffers = program.schedule->buffers;
    FPDT_ASSERT(buffers.size() <= std::numeric_limits<std::uint16_t>::max());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      slot_begin_.push_back(slots_.size());
      slots_.resize(slots_.size() + index(buffers[i].slots));
      std::vector<std::uint16_t> others;
      for (std::size_t j = 0; j < buffers.size(); ++j) {
        if (j != i && buffers[j].space == buffers[i].space && shares(buffers[i]) &&
            shares(buffers[j])) {
          others.push_back(static_cast<std::uint16_t>(j));
        }
      }
      strangers_.push_back(std::move(others));
    }
  }

  void run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      expansion_.begin(call);
      clocks_.begin(call);
      const PlainBlock& block = program_.blocks[index(call.block)];
      if (introduced_[index(call.block)] == 0) introduce(block);
      introduced_[index(call.block)] = 1;
      for (std::size_t i = 0; i < block.ops.size(); ++i) step(block.ops[i], i);
    }
  }

 private:
  struct Slot {
    std::int64_t version = -1;
    std::int64_t seen = 0;  // lives that had begun at its last access
  };

  // Buffers that one op uses together are alive together.
  void introduce(const PlainBlock& block) {
    for (const PlainOp& op : block.ops) {
      for (const PlainUse& a : op.uses) {
        for (const PlainUse& b : op.uses) {
          if (a.buffer < b.buffer) pairs_.meet(index(a.buffer), index(b.buffer));
        }
      }
    }
  }

  void step(const PlainOp& op, std::size_t number) {
    for (const After& after : op.after) clocks_.wait(op.lane, after);
    for (const PlainUse& use : op.uses) touch(use, clocks_.of_lane(op.lane));
    const auto position = static_cast<Position>(expansion_.position(op));
    for (const PlainUse& use : op.uses) {
      last_[index(use.buffer) * lanes_ + index(op.lane)] = position;
    }
    clocks_.complete(op.lane, number, position);
  }

  void touch(const PlainUse& use, const Position* clock) {
    const auto buffer = index(use.buffer);
    const std::int64_t version = expansion_.version(use);
    const std::int64_t slots = program_.schedule->buffers[buffer].slots;
    Slot& slot = slots_[slot_begin_[buffer] + index(slot_of(version, slots))];
    std::uint8_t* row = &pairs_.unordered[buffer * pairs_.count];
    if (slot.version != version && use.access != Access::read) {
      begins_.begin(buffer, ++begun_);
      slot = {version, begun_};
      begin(buffer, clock);
      return;
    }
    // Every life that began since this one did overlaps it.
    slot.version = version;
    begins_.for_each_after(slot.seen, [row](std::size_t other) { row[other] = 1; });
    slot.seen = begun_;
  }

  // A life that begins overlaps every buffer that was used so far and is not known to be complete.
  void begin(std::size_t buffer, const Position* clock) {
    const std::uint8_t* row = &pairs_.unordered[buffer * pairs_.count];
    std::vector<std::uint16_t>& strangers = strangers_[buffer];
    for (std::size_t i = strangers.size(); i-- > 0;) {
      const std::size_t other = strangers[i];
      bool open = row[other] != 0;
      for (std::size_t lane = 0; lane < lanes_; ++lane)
        open |= last_[other * lanes_ + lane] > clock[lane];
      if (!open) continue;
      pairs_.meet(buffer, other);
      strangers[i] = strangers.back();
      strangers.pop_back();
    }
  }

  const Program& program_;
  Pairs& pairs_;
  std::size_t lanes_;
  Expansion expansion_;
  CallClocks clocks_;
  std::vector<std::uint8_t> introduced_;  // whether a block was
  std::vector<Position> last_;            // [buffer][lane], latest access
  Begins begins_;
  std::int64_t begun_ = 0;                             // lives so far
  std::vector<std::vector<std::uint16_t>> strangers_;  // [buffer]: those that it has not met yet
  std::vector<std::size_t> slot_begin_;
  std::vector<Slot> slots_;
};

}  // namespace

Conflicts::Conflicts(const Program& program)
    : count_(program.schedule->buffers.size()), apart_(count_ * count_, 0) {
  const Schedule& schedule = *program.schedule;
  for (const Buffer& buffer : schedule.buffers) shares_.push_back(fpdt::shares(buffer));
  for (std::size_t a = 0; a < count_; ++a) {
    for (std::size_t b = 0; b < count_; ++b) apart_[a * count_ + b] = !shares_[a] || !shares_[b];
  }
  for (const std::vector<Call>* calls : {&schedule.train, &schedule.evaluate}) {
    std::vector<Call> some;
    for (const std::size_t i : window(*calls)) some.push_back((*calls)[i]);
    // The two programs never run at the same time, so lives of one never overlap lives of the
    // other.
    Pairs pairs(count_);
    Walk(program, pairs).run(some);
    for (std::size_t a = 0; a < count_; ++a) {
      for (std::size_t b = 0; b < count_; ++b) {
        if (pairs.unordered[a * count_ + b] != 0)
          apart_[a * count_ + b] = apart_[b * count_ + a] = 1;
      }
    }
  }
}

namespace {

// Follows the train program in issue order and notes when lives begin and end.
class Lives {
 public:
  explicit Lives(const Program& program) : program_(program) {
    std::size_t ops = 0;
    for (const Call& call : program.schedule->train) {
      ops += program.blocks[index(call.block)].ops.size();
    }
    for (auto& list : change_) list.assign(ops + 1, 0);
    for (const Buffer& buffer : program.schedule->buffers) {
      Ring ring{slots_.size(), buffer.slots, 0, nullptr};
      if (shares(buffer)) {
        ring.bytes = buffer.slot_stride().value;
        ring.change = change_[static_cast<std::size_t>(buffer.space)].data();
        slots_.resize(slots_.size() + index(buffer.slots));
      } else {
        lasting_[static_cast<std::size_t>(buffer.space)] += buffer.bytes().value;
      }
      rings_.push_back(ring);
    }
  }

  std::array<Bytes, 3> most() {
    Expansion expansion(program_);
    std::int64_t now = 0;
    for (const Call& call : program_.schedule->train) {
      expansion.begin(call);
      for (const PlainOp& op : program_.blocks[index(call.block)].ops) {
        for (const PlainUse& use : op.uses) touch(use.buffer, expansion.version(use), now);
        ++now;
      }
    }
    for (const Ring& ring : rings_) {
      for (std::int64_t slot = 0; ring.change != nullptr && slot < ring.slots; ++slot)
        close(ring, slots_[ring.first_slot + index(slot)]);
    }
    std::array<Bytes, 3> most{};
    for (std::size_t space = 0; space < most.size(); ++space) {
      std::int64_t live = lasting_[space];
      most[space] = Bytes{live};
      for (const std::int64_t step : change_[space]) {
        live += step;
        most[space] = std::max(most[space], Bytes{live});
      }
    }
    return most;
  }

 private:
  struct Slot {
    std::int64_t version = -1, begin = -1, end = -1;
  };
  struct Ring {
    std::size_t first_slot;
    std::int64_t slots;
    std::int64_t bytes;    // of a slot
    std::int64_t* change;  // null when lives do not end
  };

  void touch(BufferIndex buffer, std::int64_t version, std::int64_t now) {
    const Ring& ring = rings_[index(buffer)];
    if (ring.change == nullptr) return;
    Slot& slot = slots_[ring.first_slot + index(slot_of(version, ring.slots))];
    if (slot.version != version) {
      close(ring, slot);
      slot = {version, now, now};
    }
    slot.end = now;
  }

  static void close(const Ring& ring, const Slot& slot) {
    if (slot.begin < 0) return;
    ring.change[slot.begin] += ring.bytes;
    ring.change[slot.end + 1] -= ring.bytes;
  }

  const Program& program_;
  // [space][t]: bytes whose life begins at op t, less those whose life ended at op t - 1.
  std::array<std::vector<std::int64_t>, 3> change_;
  std::array<std::int64_t, 3> lasting_{};
  std::vector<Ring> rings_;  // of each buffer
  std::vector<Slot> slots_;
};

}  // namespace

std::array<Bytes, 3> live_bytes(const Program& program) { return Lives(program).most(); }

}  // namespace fpdt
