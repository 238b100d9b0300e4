// Follows a call list with a vector clock for each lane.
#include "fpdt/plan/phases.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "fpdt/base/assert.h"
#include "fpdt/base/words.h"
#include "fpdt/schedule/hazards.h"

namespace fpdt {
namespace {

using Position = Hazards::Position;
// A position for each lane. A lowered step has one lane of a kind at most.
using Positions = std::array<Position, words<LaneKind>().size()>;

constexpr Positions none() {
  Positions clock{};
  clock.fill(-1);
  return clock;
}

Positions latest_of(const Positions& a, const Positions& b) {
  Positions latest{};
  for (std::size_t lane = 0; lane < latest.size(); ++lane) {
    latest[lane] = std::max(a[lane], b[lane]);
  }
  return latest;
}

class Walk {
 public:
  explicit Walk(const Program& program)
      : program_(program), expansion_(program), hazards_(program), life_(hazards_.slots(), 0) {
    FPDT_ASSERT(program.lanes.size() <= clocks_.size());
    while (program.lanes[compute_].kind != LaneKind::compute) ++compute_;
  }

  std::vector<Phase> run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      expansion_.begin(call);
      const PlainBlock& block = program_.blocks[index(call.block)];
      for (const PlainOp& op : block.ops) step(op);
      if (block.ops_on_lane[compute_] == 0) continue;
      phases_.push_back({call.block, std::vector<bool>(program_.schedule->buffers.size())});
      done_.push_back(clocks_[compute_].back());
    }
    for (const Life& life : lives_) {
      const std::size_t end = std::min(last_phase(life) + 1, phases_.size());
      for (std::size_t at = life.first; at < end; ++at) phases_[at].alive[life.buffer] = true;
    }
    return std::move(phases_);
  }

 private:
  struct Life {
    std::size_t buffer = 0;
    std::int64_t version = -1;
    std::size_t first = 0;    // phase in which its first op may begin
    Positions last = none();  // its ops
  };

  void step(const PlainOp& op) {
    hazards_.issue(op, expansion_, required_.data());
    const std::size_t own = index(op.lane);
    Positions clock = clocks_[own].empty() ? none() : clocks_[own].back();
    for (std::size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      if (required_[lane] < 0 || lane == own) continue;
      clock = latest_of(clock, clocks_[lane][index(required_[lane])]);
    }
    const std::size_t first = open_phase(clock[compute_]);
    const auto position = static_cast<Position>(expansion_.position(op));
    clock[own] = position;
    clocks_[own].push_back(clock);
    for (std::size_t i = 0; i < op.uses.size(); ++i) {
      touch(op.uses[i].buffer, hazards_.touched()[i], first, own, position);
    }
  }

  void touch(BufferIndex buffer, const Hazards::Touched& touched, std::size_t phase,
             std::size_t lane, Position position) {
    std::size_t& life = life_[touched.slot];
    if (life == 0 || lives_[life - 1].version != touched.version) {
      lives_.push_back({index(buffer), touched.version, phase});
      life = lives_.size();
    }
    Life& one = lives_[life - 1];
    one.first = std::min(one.first, phase);
    one.last[lane] = position;
  }

  // The first phase with compute ops after this position.
  std::size_t open_phase(Position computed) const {
    std::size_t open = phases_.size();
    while (open > 0 && done_[open - 1][compute_] > computed) --open;
    return open;
  }

  // The first phase whose end waits for all ops of a life.
  std::size_t last_phase(const Life& life) const {
    const auto waits = [&](const Positions& done) { return latest_of(done, life.last) == done; };
    std::size_t phase = life.first;
    while (phase < phases_.size() && !waits(done_[phase])) ++phase;
    return phase;
  }

  const Program& program_;
  Expansion expansion_;
  Hazards hazards_;
  std::size_t compute_ = 0;  // lane
  // Of the ops of each lane: which are then complete, and each itself.
  std::array<std::vector<Positions>, std::tuple_size_v<Positions>> clocks_;
  Positions required_{};  // of the current op
  std::vector<Phase> phases_;
  std::vector<Positions> done_;    // when the last compute op of each phase is complete
  std::vector<std::size_t> life_;  // [slot], 1 + number of its latest life
  std::vector<Life> lives_;
};

}  // namespace

std::vector<Phase> phases(const Program& program, const std::vector<Call>& calls) {
  return Walk(program).run(calls);
}

}  // namespace fpdt
