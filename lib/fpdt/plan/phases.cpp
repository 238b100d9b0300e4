// Follows a call list with a vector clock for each lane.
#include "fpdt/plan/phases.h"

#include <algorithm>

#include "fpdt/schedule/hazards.h"

namespace fpdt {
namespace {

using Position = Hazards::Position;

class Walk {
 public:
  explicit Walk(const Program& program)
      : program_(program),
        lanes_(program.lanes.size()),
        expansion_(program),
        hazards_(program),
        clocks_(lanes_),
        required_(lanes_),
        life_(hazards_.slots(), 0) {
    while (program.lanes[compute_].kind != LaneKind::compute) ++compute_;
  }

  std::vector<Phase> run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      expansion_.begin(call);
      const PlainBlock& block = program_.blocks[index(call.block)];
      for (const PlainOp& op : block.ops) step(op);
      if (block.ops_on_lane[compute_] == 0) continue;
      phases_.push_back({call.block, std::vector<bool>(program_.schedule->buffers.size())});
      const Position* last = latest(compute_);
      done_.insert(done_.end(), last, last + lanes_);
    }
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      const std::size_t end = std::min(last_phase(i) + 1, phases_.size());
      for (std::size_t at = lives_[i].first; at < end; ++at) {
        phases_[at].alive[lives_[i].buffer] = true;
      }
    }
    return std::move(phases_);
  }

 private:
  struct Life {
    std::size_t buffer = 0;
    std::int64_t version = -1;
    std::size_t first = 0;  // phase in which its first op may begin
  };

  // The clock of the last op issued on a lane: the last op of each lane that is then complete.
  const Position* latest(std::size_t lane) const {
    return clocks_[lane].data() + clocks_[lane].size() - lanes_;
  }

  void step(const PlainOp& op) {
    hazards_.issue(op, expansion_, required_.data());
    const std::size_t own = index(op.lane);
    const std::size_t before = clocks_[own].size();
    clocks_[own].resize(before + lanes_, -1);
    Position* const clock = &clocks_[own][before];
    if (before > 0) std::copy_n(clock - lanes_, lanes_, clock);
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (required_[lane] < 0 || lane == own) continue;
      const Position* other = &clocks_[lane][index(required_[lane]) * lanes_];
      for (std::size_t k = 0; k < lanes_; ++k) clock[k] = std::max(clock[k], other[k]);
    }
    const std::size_t first = open_phase(clock[compute_]);
    const auto position = static_cast<Position>(expansion_.position(op));
    clock[own] = position;
    for (std::size_t i = 0; i < op.uses.size(); ++i) {
      touch(op.uses[i].buffer, hazards_.touched()[i], first, own, position);
    }
  }

  void touch(BufferIndex buffer, const Hazards::Touched& touched, std::size_t phase,
             std::size_t lane, Position position) {
    std::size_t& life = life_[touched.slot];
    if (life == 0 || lives_[life - 1].version != touched.version) {
      lives_.push_back({index(buffer), touched.version, phase});
      ends_.insert(ends_.end(), lanes_, -1);
      life = lives_.size();
    }
    lives_[life - 1].first = std::min(lives_[life - 1].first, phase);
    ends_[(life - 1) * lanes_ + lane] = position;
  }

  // The first phase with compute ops after this position.
  std::size_t open_phase(Position computed) const {
    std::size_t open = phases_.size();
    while (open > 0 && done_[(open - 1) * lanes_ + compute_] > computed) --open;
    return open;
  }

  // The first phase whose end waits for all ops of a life.
  std::size_t last_phase(std::size_t life) const {
    const auto waits = [&](std::size_t phase) {
      for (std::size_t lane = 0; lane < lanes_; ++lane) {
        if (done_[phase * lanes_ + lane] < ends_[life * lanes_ + lane]) return false;
      }
      return true;
    };
    std::size_t phase = lives_[life].first;
    while (phase < phases_.size() && !waits(phase)) ++phase;
    return phase;
  }

  const Program& program_;
  std::size_t lanes_;
  Expansion expansion_;
  Hazards hazards_;
  std::size_t compute_ = 0;                    // lane
  std::vector<std::vector<Position>> clocks_;  // [lane][op, lane]
  std::vector<Position> required_;             // [lane], of the current op
  std::vector<Phase> phases_;
  std::vector<Position> done_;     // [phase, lane], when its last compute op is complete
  std::vector<std::size_t> life_;  // [slot], 1 + number of its latest life
  std::vector<Life> lives_;
  std::vector<Position> ends_;  // [life, lane], of its ops
};

}  // namespace

std::vector<Phase> phases(const Program& program, const std::vector<Call>& calls) {
  return Walk(program).run(calls);
}

}  // namespace fpdt
