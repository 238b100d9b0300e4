// Issues calls, finds writers for lanes that run far ahead, and tracks how versions move with
// calls.
#include "fpdt/sim/hazard_waits.h"

#include <algorithm>
#include <utility>

namespace fpdt {
namespace {

bool writes(const PlainUse& use) {
  return use.access == Access::write || use.access == Access::scratch;
}

}  // namespace

HazardWaits::HazardWaits(const Program& program, const std::vector<Call>& calls,
                         const CallTable& table)
    : program_(&program),
      calls_(&calls),
      table_(&table),
      expansion_(program),
      hazards_(program),
      here_(program.lanes.size()),
      motions_(program.blocks.size()) {}

void HazardWaits::Range::add(const Range& other) {
  low = std::min(low, other.low);
  high = std::max(high, other.high);
}

void HazardWaits::issue(const PlainBlock& block, const Expansion& expansion, Rows& rows) {
  rows.resize(block.ops.size() * here_.size());
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    hazards_.issue(block.ops[i], expansion, rows.data() + i * here_.size());
  }
}

void HazardWaits::issue() {
  const std::int32_t number = issued();
  const Call& call = (*calls_)[index(number)];
  expansion_.begin(call);
  if (const auto early = early_.extract(number)) {
    rows_.push_back(std::move(early.mapped()));
    return;
  }
  Rows rows;
  if (!spare_.empty()) {
    rows = std::move(spare_.back());
    spare_.pop_back();
  }
  issue(program_->blocks[index(call.block)], expansion_, rows);
  rows_.push_back(std::move(rows));
}

// Issues a call before those that precede it. False if one of these writes a buffer that it uses,
// or uses one that it writes.
bool HazardWaits::issue_early(std::int32_t call) {
  if (early_.contains(call)) return true;
  enum class Own : std::uint8_t { unused, read, written };
  std::vector<Own> own(program_->schedule->buffers.size(), Own::unused);
  for (const Motion& motion : motions(table_->block(call))) {
    Own& here = own[index(motion.buffer)];
    here = std::max(here, motion.written ? Own::written : Own::read);
  }
  std::vector<bool> met(program_->blocks.size());
  for (std::int32_t i = issued(); i < call; ++i) {
    const std::int32_t block = table_->block(i);
    if (met[index(block)]) continue;
    met[index(block)] = true;
    for (const Motion& motion : motions(block)) {
      const Own here = own[index(motion.buffer)];
      if (here == Own::written || (here == Own::read && motion.written)) return false;
    }
  }
  Expansion there = expansion_;
  for (std::int32_t i = issued(); i <= call; ++i) there.begin((*calls_)[index(i)]);
  issue(program_->blocks[index(table_->block(call))], there, early_[call]);
  return true;
}

void HazardWaits::arrive(std::size_t lane) {
  Here& here = here_[lane];
  here.writer.reset();
  if (here.call >= issued() + kFar && issue_early(here.call)) {
    here.rows = early_.at(here.call).data();
    return;
  }
  while (issued() <= here.call) issue();
  here.rows = rows_[index(here.call - forgotten_)].data();
}

void HazardWaits::complete(std::int32_t call) {
  for (; forgotten_ < call && !rows_.empty(); ++forgotten_) {
    spare_.push_back(std::move(rows_.front()));
    rows_.pop_front();
  }
}

void HazardWaits::leave_out(std::int32_t call) {
  complete(call);
  if (issued() >= call) return;
  for (; forgotten_ < call; ++forgotten_) expansion_.begin((*calls_)[index(forgotten_)]);
  early_.erase(early_.begin(), early_.lower_bound(call));
  hazards_.leave_out();
}

// Among the writes of versions that the lane's first op in the call reads, the one in the latest
// call that is not issued yet.
std::optional<HazardWaits::Write> HazardWaits::writer(std::size_t lane, std::int32_t call) {
  const PlainBlock& block = program_->blocks[index(table_->block(call))];
  const auto op = std::find_if(block.ops.begin(), block.ops.end(),
                               [lane](const PlainOp& one) { return index(one.lane) == lane; });
  std::optional<Write> latest;
  std::int32_t latest_call = -1;
  for (const PlainUse& use : op->uses) {
    if (writes(use)) continue;
    const std::int64_t wanted = version_in(use, call);
    for (std::int32_t i = issued(); i < call; ++i) {
      for (const auto& [other, lane_of, position] : writes_of(table_->block(i), use.buffer)) {
        const bool meet = other->row_first < use.row_first + use.rows &&
                          use.row_first < other->row_first + other->rows;
        if (i <= latest_call || !meet || version_in(*other, i) != wanted) continue;
        latest = Write{other, lane_of, table_->begin(i, lane_of) + position};
        latest_call = i;
      }
    }
  }
  return latest;
}

std::int64_t HazardWaits::version_in(const PlainUse& use, std::int32_t call) {
  const Version& anchor = program_->anchors[index(use.anchor)];
  if (!anchor.relative) return use.offset + call_part(anchor, (*calls_)[index(call)]);
  std::vector<std::int64_t>& bases = bases_[use.buffer];
  if (bases.empty()) bases.push_back(0);
  while (bases.size() <= index(call)) {
    const auto last = static_cast<std::int32_t>(bases.size()) - 1;
    const PlainBlock& block = program_->blocks[index(table_->block(last))];
    bases.push_back(bases.back() + block.advance[index(use.buffer)]);
  }
  return bases[index(call)] + use.offset;
}

const std::vector<HazardWaits::Write>& HazardWaits::writes_of(std::int32_t block,
                                                              BufferIndex buffer) {
  const auto [place, fresh] = writes_.try_emplace({block, buffer});
  if (!fresh) return place->second;
  for (const PlainOp& op : program_->blocks[index(block)].ops) {
    for (const PlainUse& use : op.uses) {
      if (use.buffer == buffer && writes(use))
        place->second.push_back({&use, op.lane, op.lane_position});
    }
  }
  return place->second;
}

const std::vector<HazardWaits::Motion>& HazardWaits::motions(std::int32_t block) {
  std::vector<Motion>& all = motions_[index(block)];
  if (!all.empty()) return all;
  std::vector<std::vector<std::size_t>> of_buffer(program_->schedule->buffers.size());
  for (const PlainUse& use : program_->blocks[index(block)].uses) {
    std::vector<std::size_t>& known = of_buffer[index(use.buffer)];
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](std::size_t i) { return all[i].anchor == use.anchor; });
    if (same != known.end()) {
      all[*same].offsets.add({use.offset, use.offset});
      all[*same].written |= use.access != Access::read;
      continue;
    }
    known.push_back(all.size());
    all.push_back({use.buffer, use.anchor, {use.offset, use.offset}, use.access != Access::read});
  }
  return all;
}

// Finds how the versions of each buffer move from the period before `first` until `end`.
void HazardWaits::find_moving(std::int32_t first, std::int32_t end, std::int32_t period) {
  const std::vector<Buffer>& buffers = program_->schedule->buffers;
  std::vector<std::int64_t> advance(buffers.size(), 0);
  for (std::int32_t call = first - period; call < first; ++call) {
    const auto block = index(table_->block(call));
    for (const auto& [buffer, n] : program_->schedule->blocks[block].advance) {
      advance[index(buffer)] += n;
    }
  }
  moving_.resize(buffers.size());
  for (std::vector<Moving>& of_buffer : moving_) of_buffer.clear();
  for (std::int32_t call = first; call < first + period && call < table_->size(); ++call) {
    const std::int64_t periods = (end - call) / period + 1;
    for (const Motion& motion : motions(table_->block(call))) {
      const auto buffer = index(motion.buffer);
      const Version& anchor = program_->anchors[index(motion.anchor)];
      Moving one{advance[buffer], anchor.relative, {}, {}};
      if (!anchor.relative) {
        const std::int64_t before = call_part(anchor, (*calls_)[index(call - period)]);
        one.distance = call_part(anchor, (*calls_)[index(call)]) - before;
        const std::int64_t slots = buffers[buffer].slots;
        std::int64_t shift = slot_of(one.distance, slots);
        if (shift > slots / 2) shift -= slots;
        const auto all_from = [&](std::int64_t distance) {
          Range range{before + motion.offsets.low, before + motion.offsets.high};
          range.add({range.low + periods * distance, range.high + periods * distance});
          return range;
        };
        one.versions = all_from(one.distance);
        one.slots = all_from(shift);
      }
      std::vector<Moving>& known = moving_[buffer];
      const auto same = std::find_if(known.begin(), known.end(), [&](const Moving& other) {
        return other.distance == one.distance && other.relative == one.relative;
      });
      if (same == known.end()) {
        known.push_back(one);
      } else {
        same->versions.add(one.versions);
        same->slots.add(one.slots);
      }
    }
  }
}

// Whether ops wait as in the period before `first` until `end`.
bool HazardWaits::alike(std::int32_t first, std::int32_t end, std::int32_t period) {
  find_moving(first, end, period);
  const auto apart = [](const Moving& a, const Moving& b, std::int64_t slots) {
    if (a.relative || b.relative) return a.distance == b.distance;
    const bool meet = a.versions.low <= b.versions.high && b.versions.low <= a.versions.high;
    if (meet) return false;
    if (slot_of(a.distance, slots) == slot_of(b.distance, slots)) return true;
    const std::int64_t from_a = slot_of(b.slots.low - a.slots.low, slots);
    const std::int64_t from_b = slot_of(a.slots.low - b.slots.low, slots);
    return from_a > a.slots.high - a.slots.low && from_b > b.slots.high - b.slots.low;
  };
  for (std::size_t buffer = 0; buffer < moving_.size(); ++buffer) {
    const std::vector<Moving>& all = moving_[buffer];
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!apart(all[j], all[i], program_->schedule->buffers[buffer].slots)) return false;
      }
    }
  }
  return true;
}

std::int32_t HazardWaits::repeated(std::int32_t first, std::int32_t end, std::int32_t period) {
  const auto step = [&](std::int32_t call) {
    const Call& from = (*calls_)[index(call - period)];
    const Call& to = (*calls_)[index(call)];
    return Call{to.block - from.block, to.layer - from.layer, to.micro_batch - from.micro_batch,
                to.segment - from.segment, to.place - from.place};
  };
  const Call all = step(first);
  std::int32_t call = first;
  while (call < end && table_->block(call) == table_->block(call - period) && step(call) == all) {
    ++call;
  }
  return call - first < period || alike(first, call, period) ? call : first;
}

}  // namespace fpdt
