// Lives of buffers from the schedule's happens-before order, then best-fit packing over several orders.
#include "fpdt/plan/place.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool shares(const Buffer& buffer) { return buffer.role == Role::temporary; }

// What a walk over a call list learns: which buffers may not share, and what lives when.
struct Lives {
  explicit Lives(std::size_t buffers) : count(buffers), conflict(buffers * buffers, 0) {}

  struct Life {
    BufferIndex buffer;
    std::int64_t begin, end;  // in issue order
  };

  void meet(std::size_t a, std::size_t b) { conflict[a * count + b] = conflict[b * count + a] = 1; }
  [[nodiscard]] bool meets(std::size_t a, std::size_t b) const { return conflict[a * count + b] != 0; }

  std::size_t count;
  std::vector<std::uint8_t> conflict;
  std::vector<Life> lives;
};

class Walk {
 public:
  Walk(const Program& program, Lives& lives)
      : program_(program),
        lives_(lives),
        lanes_(program.lanes.size()),
        expansion_(program),
        lane_clock_(lanes_ * lanes_, -1),
        last_(lives.count * lanes_, -1),
        last_begin_(lives.count, -1) {
    const std::vector<Buffer>& buffers = program.schedule->buffers;
    FPDT_ASSERT(buffers.size() <= std::numeric_limits<std::uint16_t>::max());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      slot_begin_.push_back(slots_.size());
      slots_.resize(slots_.size() + index(buffers[i].slots));
      std::vector<std::uint16_t> others;
      for (std::size_t j = 0; j < buffers.size(); ++j) {
        if (j != i && buffers[j].space == buffers[i].space && shares(buffers[i]) && shares(buffers[j])) {
          others.push_back(static_cast<std::uint16_t>(j));
        }
      }
      strangers_.push_back(std::move(others));
    }
    for (const PlainBlock& block : program.blocks) {
      clocks_.emplace_back(index(block.calls_back + 1) * block.ops.size() * lanes_, -1);
    }
    calls_of_.assign(program.blocks.size(), 0);
  }

  void run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      expansion_.begin(call);
      ++calls_of_[index(call.block)];
      const PlainBlock& block = program_.blocks[index(call.block)];
      for (std::size_t i = 0; i < block.ops.size(); ++i) step(block.ops[i], i);
    }
    for (std::size_t buffer = 0; buffer < lives_.count; ++buffer) {
      const std::int64_t n = program_.schedule->buffers[buffer].slots;
      for (std::int64_t slot = 0; slot < n; ++slot) close(buffer, slots_[slot_begin_[buffer] + index(slot)]);
    }
  }

 private:
  struct Slot {
    std::int64_t version = -1;
    std::int64_t begin = -1, end = -1;  // of its life, in issue order
  };

  std::int64_t* clock_of(std::int32_t block, std::int64_t number, std::size_t op) {
    const std::int64_t ring = program_.blocks[index(block)].calls_back + 1;
    const std::size_t ops = program_.blocks[index(block)].ops.size();
    return &clocks_[index(block)][(index(number % ring) * ops + op) * lanes_];
  }

  void step(const PlainOp& op, std::size_t number) {
    std::int64_t* clock = &lane_clock_[index(op.lane) * lanes_];
    const std::int32_t block = expansion_.call().block;
    for (const After& after : op.after) {
      const std::int64_t calls = calls_of_[index(after.block)] - (after.block == block ? 1 : 0);
      const std::int64_t call = calls - after.calls_back;
      if (call < 0) continue;
      const std::int64_t* other = clock_of(after.block, call, index(after.op));
      for (std::size_t lane = 0; lane < lanes_; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
    }
    for (const PlainUse& use : op.uses) touch(use, clock);
    for (const PlainUse& a : op.uses) {
      for (const PlainUse& b : op.uses) {
        if (a.buffer != b.buffer) lives_.meet(index(a.buffer), index(b.buffer));
      }
      last_[index(a.buffer) * lanes_ + index(op.lane)] = expansion_.position(op);
    }
    clock[op.lane] = expansion_.position(op);
    std::copy_n(clock, lanes_, clock_of(block, calls_of_[index(block)] - 1, number));
    ++now_;
  }

  void touch(const PlainUse& use, const std::int64_t* clock) {
    const auto buffer = index(use.buffer);
    const std::int64_t version = expansion_.version(use);
    const std::int64_t n = program_.schedule->buffers[buffer].slots;
    Slot& slot = slots_[slot_begin_[buffer] + index((version % n + n) % n)];
    std::uint8_t* row = &lives_.conflict[buffer * lives_.count];
    if (slot.version != version && use.access != Access::read) {
      close(buffer, slot);
      slot = {version, now_, now_};
      last_begin_[buffer] = now_;
      // Whatever was used so far and is not known to be done shares this moment.
      std::vector<std::uint16_t>& strangers = strangers_[buffer];
      for (std::size_t i = strangers.size(); i-- > 0;) {
        const std::size_t other = strangers[i];
        bool open = row[other] != 0;
        for (std::size_t lane = 0; lane < lanes_; ++lane) open |= last_[other * lanes_ + lane] > clock[lane];
        if (!open) continue;
        lives_.meet(buffer, other);
        strangers[i] = strangers.back();
        strangers.pop_back();
      }
      return;
    }
    slot.version = version;
    slot.end = now_;
    // Whatever began since this life did overlaps it.
    for (std::size_t other = 0; other < lives_.count; ++other) row[other] |= last_begin_[other] > slot.begin;
  }

  void close(std::size_t buffer, const Slot& slot) {
    if (slot.end >= 0) lives_.lives.push_back({static_cast<BufferIndex>(buffer), slot.begin, slot.end});
  }

  const Program& program_;
  Lives& lives_;
  std::size_t lanes_;
  Expansion expansion_;
  std::vector<std::int64_t> lane_clock_;           // [lane][lane]
  std::vector<std::vector<std::int64_t>> clocks_;  // [block][(ring, op, lane)]
  std::vector<std::int64_t> calls_of_;
  std::vector<std::int64_t> last_;        // [buffer][lane], latest access
  std::vector<std::int64_t> last_begin_;  // of each buffer, in issue order
  std::vector<std::vector<std::uint16_t>> strangers_;  // of each buffer: those it has not met yet
  std::vector<std::size_t> slot_begin_;
  std::vector<Slot> slots_;
  std::int64_t now_ = 0;
};

// Buffers of one space, and what packing needs to know of them.
struct Packing {
  const Schedule& schedule;
  const Lives& lives;
  std::vector<std::size_t> items;  // buffers of the space

  [[nodiscard]] std::int64_t bytes(std::size_t item) const {
    return schedule.buffers[item].bytes().value;
  }
  [[nodiscard]] bool apart(std::size_t a, std::size_t b) const {
    return lives.meets(a, b) || lives.meets(b, a) || !shares(schedule.buffers[a]) ||
           !shares(schedule.buffers[b]);
  }

  // Each item at the lowest place that no conflicting one occupies, in the given order.
  std::int64_t pack(const std::vector<std::size_t>& order, std::vector<std::int64_t>& offsets) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    std::int64_t top = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      taken.clear();
      for (std::size_t j = 0; j < i; ++j) {
        if (apart(order[i], order[j])) {
          taken.push_back({offsets[order[j]], offsets[order[j]] + bytes(order[j])});
        }
      }
      std::sort(taken.begin(), taken.end());
      std::int64_t at = 0;
      for (const auto& [begin, end] : taken) {
        if (begin - at >= bytes(order[i])) break;
        at = std::max(at, end);
      }
      offsets[order[i]] = at;
      top = std::max(top, at + bytes(order[i]));
    }
    return top;
  }
};

// Most bytes of slots whose lives overlap in issue order.
Bytes live_bytes(const Packing& packing) {
  struct Event {
    std::int64_t time;
    std::int64_t bytes;  // negative at the end of a life, so that ends sort before begins
  };
  std::vector<std::uint8_t> here(packing.schedule.buffers.size(), 0);
  std::int64_t live = 0;
  for (const std::size_t item : packing.items) {
    if (shares(packing.schedule.buffers[item])) {
      here[item] = 1;
    } else {
      live += packing.bytes(item);
    }
  }
  std::vector<Event> events;
  for (const Lives::Life& life : packing.lives.lives) {
    if (here[index(life.buffer)] == 0) continue;
    const std::int64_t bytes = packing.schedule.buffers[index(life.buffer)].slot_stride().value;
    events.push_back({life.begin, bytes});
    events.push_back({life.end + 1, -bytes});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::pair(a.time, a.bytes) < std::pair(b.time, b.bytes);
  });
  std::int64_t most = live;
  for (const Event& event : events) {
    live += event.bytes;
    most = std::max(most, live);
  }
  return Bytes{most};
}

// A heavy set of buffers that pairwise may not share: from every buffer, grown by the heaviest that fits.
Bytes bound_bytes(const Packing& packing) {
  std::vector<std::size_t> order = packing.items;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return packing.bytes(a) > packing.bytes(b); });
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

// Packs by size, then by orders in which an item that stuck out goes earlier; keeps what is better.
void pack_best(Schedule& schedule, const Packing& packing, SpaceUse& use) {
  constexpr int kTries = 150;
  std::vector<std::size_t> order = packing.items;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool sa = shares(schedule.buffers[a]);
    const bool sb = shares(schedule.buffers[b]);
    return sa != sb ? !sa : packing.bytes(a) > packing.bytes(b);
  });
  std::vector<std::int64_t> offsets(schedule.buffers.size(), 0);
  std::vector<std::int64_t> best_offsets = offsets;
  std::vector<std::size_t> best = order;
  use.arena = Bytes{packing.pack(best, best_offsets)};
  std::uint32_t random = 1;  // a fixed sequence: placement is deterministic
  for (int attempt = 0; attempt < kTries && use.arena > use.bound; ++attempt) {
    order = best;
    const auto next = [&random](std::size_t n) {
      random = random * 1664525U + 1013904223U;
      return static_cast<std::ptrdiff_t>((random >> 8U) % n);
    };
    // One of the items that reach the top third goes to a random earlier place.
    std::vector<std::ptrdiff_t> high;
    for (std::size_t i = 1; i < order.size(); ++i) {
      const std::int64_t end = best_offsets[order[i]] + packing.bytes(order[i]);
      if (end > use.arena.value / 3 * 2) high.push_back(static_cast<std::ptrdiff_t>(i));
    }
    if (high.empty()) break;
    const std::ptrdiff_t from = high[static_cast<std::size_t>(next(high.size()))];
    const std::ptrdiff_t to = next(static_cast<std::size_t>(from));
    std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    const std::int64_t top = packing.pack(order, offsets);
    if (top > use.arena.value) continue;
    use.arena = Bytes{top};
    best = order;
    best_offsets = offsets;
  }
  for (const std::size_t item : packing.items) schedule.buffers[item].offset = best_offsets[item];
}

}  // namespace

Placement place(Schedule& schedule) {
  const Program program(schedule);
  Lives lives(schedule.buffers.size());
  for (const std::vector<Call>* calls : {&schedule.train, &schedule.evaluate}) {
    std::vector<Call> some;
    for (const std::size_t i : window(*calls)) some.push_back((*calls)[i]);
    // Two programs never run at once: lives of each are compared only with their own.
    Lives of_list(schedule.buffers.size());
    Walk(program, of_list).run(some);
    for (std::size_t i = 0; i < lives.conflict.size(); ++i) lives.conflict[i] |= of_list.conflict[i];
    if (calls == &schedule.train) lives.lives = std::move(of_list.lives);
  }
  Placement placement;
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host_pinned, MemorySpace::host}) {
    Packing packing{schedule, lives, {}};
    for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
      if (schedule.buffers[i].space == space) packing.items.push_back(i);
    }
    SpaceUse& use = placement.space[static_cast<std::size_t>(space)];
    use.live = live_bytes(packing);
    use.bound = std::max(use.live, bound_bytes(packing));
    pack_best(schedule, packing, use);
    if (packing.items.empty()) use.arena = Bytes{0};
  }
  return placement;
}

}  // namespace fpdt
