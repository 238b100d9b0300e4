// Lives of buffers from the schedule's happens-before order, then best-fit packing over several orders.
#include "fpdt/plan/place.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

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
    for (const Buffer& buffer : buffers) {
      slot_begin_.push_back(slots_.size());
      slots_.resize(slots_.size() + index(buffer.slots));
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
      for (std::size_t other = 0; other < lives_.count; ++other) {
        bool open = false;
        for (std::size_t lane = 0; lane < lanes_; ++lane) open |= last_[other * lanes_ + lane] > clock[lane];
        if (open && other != buffer) lives_.meet(buffer, other);
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
  std::vector<std::size_t> slot_begin_;
  std::vector<Slot> slots_;
  std::int64_t now_ = 0;
};

bool shares(const Buffer& buffer) { return buffer.role == Role::temporary; }

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

// Heaviest sets of buffers that overlap in time, each grown by what meets all of it.
SpaceUse measure(const Packing& packing) {
  struct Event {
    std::int64_t time;
    bool begin;
    BufferIndex buffer;
  };
  std::vector<Event> events;
  for (const Lives::Life& life : packing.lives.lives) {
    events.push_back({life.begin, true, life.buffer});
    events.push_back({life.end + 1, false, life.buffer});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::pair(a.time, a.begin) < std::pair(b.time, b.begin);
  });
  std::vector<std::int64_t> open(packing.schedule.buffers.size(), 0);
  std::vector<std::uint8_t> here(open.size(), 0);
  std::int64_t live = 0;
  std::int64_t rings = 0;
  for (const std::size_t item : packing.items) {
    here[item] = 1;
    if (shares(packing.schedule.buffers[item])) continue;
    live += packing.bytes(item);
    rings += packing.bytes(item);
  }
  SpaceUse use{Bytes{live}, Bytes{rings}, {}};
  std::vector<std::int64_t> heaviest = open;
  for (const Event& event : events) {
    const auto buffer = index(event.buffer);
    if (here[buffer] == 0 || !shares(packing.schedule.buffers[buffer])) continue;
    const std::int64_t slot = packing.schedule.buffers[buffer].slot_stride().value;
    if (event.begin) {
      live += slot;
      if (open[buffer]++ == 0) rings += packing.bytes(buffer);
    } else {
      live -= slot;
      if (--open[buffer] == 0) rings -= packing.bytes(buffer);
    }
    use.live = std::max(use.live, Bytes{live});
    if (rings > use.bound.value) {
      use.bound = Bytes{rings};
      heaviest = open;
    }
  }
  std::vector<std::size_t> set;
  for (const std::size_t item : packing.items) {
    if (heaviest[item] > 0 || !shares(packing.schedule.buffers[item])) set.push_back(item);
  }
  std::vector<std::size_t> rest = packing.items;
  std::sort(rest.begin(), rest.end(),
            [&](std::size_t a, std::size_t b) { return packing.bytes(a) > packing.bytes(b); });
  for (const std::size_t item : rest) {
    const bool all = std::all_of(set.begin(), set.end(),
                                 [&](std::size_t other) { return other != item && packing.apart(item, other); });
    if (!all) continue;
    set.push_back(item);
    use.bound += Bytes{packing.bytes(item)};
  }
  return use;
}

// Packs by size, then moves what ends on top forward, until the bound is met or nothing helps.
void pack_best(Schedule& schedule, const Packing& packing, SpaceUse& use) {
  constexpr int kTries = 300;
  std::vector<std::size_t> order = packing.items;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool sa = shares(schedule.buffers[a]);
    const bool sb = shares(schedule.buffers[b]);
    return sa != sb ? !sa : packing.bytes(a) > packing.bytes(b);
  });
  std::vector<std::int64_t> offsets(schedule.buffers.size(), 0);
  std::vector<std::int64_t> best;
  use.arena = Bytes{-1};
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::int64_t top = packing.pack(order, offsets);
    if (use.arena.value < 0 || top < use.arena.value) {
      use.arena = Bytes{top};
      best = offsets;
    }
    if (use.arena <= use.bound) break;
    // The item that reaches highest goes before the one it could not share with, a step further each time.
    const auto highest = std::max_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return offsets[a] + packing.bytes(a) < offsets[b] + packing.bytes(b);
    });
    const auto at = highest - order.begin();
    if (at == 0) break;
    const auto target = order.begin() + at * (attempt % 7) / 8;
    std::rotate(target, highest, highest + 1);
  }
  for (const std::size_t item : packing.items) schedule.buffers[item].offset = best[item];
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
    use = measure(packing);
    pack_best(schedule, packing, use);
    if (packing.items.empty()) use.arena = Bytes{0};
  }
  return placement;
}

}  // namespace fpdt
