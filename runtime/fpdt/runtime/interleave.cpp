// Runs a step's ops in an order drawn by a seed.
#include "fpdt/runtime/interleave.h"

#include <algorithm>
#include <random>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/runtime/collective.h"

namespace fpdt {

Interleaver::Interleaver(const VerifiedSchedule& schedule, Run run)
    : program_(schedule.schedule()), run_(std::move(run)) {
  for (std::int64_t rank = 0; rank < schedule.schedule().ranks; ++rank) {
    std::array<Reservation, kMemorySpaces.size()> reservations;
    Arenas arenas;
    for (const MemorySpace space : kMemorySpaces) {
      const auto i = static_cast<std::size_t>(space);
      reservations[i] =
          Reservation(arena_bytes(schedule.schedule(), space), Populate::no, "a rank");
      arenas[i] = reservations[i].bytes();
    }
    ranks_.push_back({std::move(reservations), Addresses(schedule.schedule(), arenas), {}});
  }
}

void Interleaver::expand(std::span<const Call> calls) {
  lanes_.assign(program_.lanes.size(), {});
  for (Rank& rank : ranks_) rank.completed.assign(program_.lanes.size(), 0);
  Expansion expansion(program_);
  for (const Call& call : calls) {
    expansion.begin(call);
    for (const PlainOp& op : program_.blocks[static_cast<std::size_t>(call.block)].ops) {
      Step step{&op, {}, {}};
      for (const PlainUse& use : op.uses) step.versions.push_back(expansion.version(use));
      for (const After& after : op.after) {
        const LanePosition position = expansion.position(after);
        if (position < 0) continue;
        const PlainBlock& block = program_.blocks[static_cast<std::size_t>(after.block)];
        step.waits.push_back({block.ops[static_cast<std::size_t>(after.op)].lane,
                              static_cast<std::int32_t>(position)});
      }
      lanes_[static_cast<std::size_t>(op.lane)].push_back(std::move(step));
    }
  }
}

bool Interleaver::may_run(std::int64_t rank, std::size_t lane) const {
  const std::vector<std::size_t>& completed = ranks_[static_cast<std::size_t>(rank)].completed;
  if (completed[lane] == lanes_[lane].size()) return false;
  const Step& step = lanes_[lane][completed[lane]];
  return std::all_of(step.waits.begin(), step.waits.end(), [&completed](const Event& event) {
    return completed[static_cast<std::size_t>(event.lane)] >
           static_cast<std::size_t>(event.position);
  });
}

// A collective may run when every member of its group has reached it. Only the first member reports
// it, so that it is counted once.
bool Interleaver::may_meet(std::int64_t rank, std::size_t lane) const {
  const std::size_t next = ranks_[static_cast<std::size_t>(rank)].completed[lane];
  const Body& body = lanes_[lane][next].op->op->body;
  if (!is_collective(body)) return true;
  const Membership members = membership(group_of(*program_.schedule, body), rank);
  if (members.mine != 0) return false;
  for (std::int64_t i = 1; i < members.size; ++i) {
    const std::int64_t peer = members.first + i * members.stride;
    if (ranks_[static_cast<std::size_t>(peer)].completed[lane] != next) return false;
    if (!may_run(peer, lane)) return false;
  }
  return true;
}

std::vector<View> Interleaver::views(std::int64_t rank, const Step& step) const {
  std::vector<View> all;
  for (std::size_t i = 0; i < step.versions.size(); ++i) {
    all.push_back(
        ranks_[static_cast<std::size_t>(rank)].addresses.view(step.op->uses[i], step.versions[i]));
  }
  return all;
}

void Interleaver::run_next(std::int64_t rank, std::size_t lane) {
  const Step& step = lanes_[lane][ranks_[static_cast<std::size_t>(rank)].completed[lane]];
  const Body& body = step.op->op->body;
  if (!is_collective(body)) {
    run_(rank, *step.op->op, views(rank, step));
    ++ranks_[static_cast<std::size_t>(rank)].completed[lane];
    return;
  }
  const Membership members = membership(group_of(*program_.schedule, body), rank);
  std::vector<std::vector<View>> owned;
  for (std::int64_t i = 0; i < members.size; ++i) {
    owned.push_back(views(members.first + i * members.stride, step));
  }
  const std::vector<std::span<const View>> all(owned.begin(), owned.end());
  for (std::int64_t i = 0; i < members.size; ++i) {
    receive(body, i, all);
    ++ranks_[static_cast<std::size_t>(members.first + i * members.stride)].completed[lane];
  }
}

void Interleaver::run(std::span<const Call> calls, std::uint64_t seed) {
  expand(calls);
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::int64_t, std::size_t>> ready;
  for (;;) {
    ready.clear();
    for (std::int64_t rank = 0; rank < std::ssize(ranks_); ++rank) {
      for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (may_run(rank, lane) && may_meet(rank, lane)) ready.emplace_back(rank, lane);
      }
    }
    if (ready.empty()) break;
    const auto& [rank, lane] = ready[random() % ready.size()];
    run_next(rank, lane);
  }
  for (const Rank& rank : ranks_) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      FPDT_ASSERT(rank.completed[lane] == lanes_[lane].size());
    }
  }
}

}  // namespace fpdt
