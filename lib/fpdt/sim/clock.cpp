// Runs the event loop, and skips periods that repeat.
#include "fpdt/sim/clock.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/sim/edge_waits.h"
#include "fpdt/sim/hazard_waits.h"
#include "fpdt/sim/repeats.h"

namespace fpdt {
namespace {

// The state of a lane. An idle lane waits for the op at blocker_position of blocker_lane.
struct Runner {
  std::size_t kind = 0;
  std::int32_t call = 0;
  const Step* steps = nullptr;  // of the call on this lane
  std::int32_t step = 0;
  std::int32_t count = 0;
  bool running = false;
  bool ended = false;
  std::int32_t blocker_lane = 0;
  LanePosition blocker_position = -1;
  std::int64_t start = 0;      // of the op
  std::int64_t remaining = 0;  // work at `since`
  std::int64_t since = 0;
  std::int64_t pace = 0;
  std::int64_t finish = 0;  // at this pace
};

template <class Waits>
class Clock {
 public:
  Clock(const ClockQuestion& question, const std::vector<BlockSteps>& steps, const CallTable& table,
        Waits waits)
      : question_(question),
        steps_(steps),
        table_(table),
        waits_(std::move(waits)),
        runners_(question.program.lanes.size()),
        completed_(runners_.size(), 0) {
    answer_.lane_busy.assign(4, 0);
    answer_.kind_busy.assign(kBodies, 0);
    answer_.calls.resize(question.calls.size());
    untraced_until_.assign(question.calls.size() + 1, table.size());
    for (std::int32_t call = table.size(); call-- > 0;) {
      const bool traced = !question.traced.empty() && question.traced[index(call)];
      untraced_until_[index(call)] = traced ? call : untraced_until_[index(call) + 1];
    }
  }

  ClockAnswer run() {
    begin();
    while (start_ready([](std::size_t /*lane*/) { return true; })) {
      complete_ended(next_end());
      if (!moved_) continue;
      moved_ = false;
      if (const std::int32_t call = oldest(); call != oldest_) {
        oldest_ = call;
        waits_.complete(oldest_);
        if (question_.skip_periods && oldest_ < table_.size()) skip();
      }
    }
    return finish();
  }

  // The steps of `run`, one event at a time, for ranks that wait for each other.
  void begin() {
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      runners_[lane].kind = static_cast<std::size_t>(question_.program.lanes[lane].kind);
      enter(lane, 0);
    }
    oldest_ = oldest();
  }

  ClockAnswer finish() {
    for (const Runner& runner : runners_) FPDT_ASSERT(runner.ended);
    return std::move(answer_);
  }

  // How many ops each lane has come to: has completed, runs, or could start if this rank were
  // alone.
  void come_to(std::vector<LanePosition>& ops) {
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      const Runner& runner = runners_[lane];
      const bool here = !runner.ended && (runner.running || !blocked(lane));
      ops[lane] = completed_[lane] + (here ? 1 : 0);
    }
  }

  [[nodiscard]] LanePosition completed(std::size_t lane) const { return completed_[lane]; }
  [[nodiscard]] std::int32_t block(std::size_t lane) const {
    return table_.block(runners_[lane].call);
  }
  // The lane's op, in its block.
  [[nodiscard]] std::int32_t op(std::size_t lane) const {
    return runners_[lane].steps[runners_[lane].step].op;
  }

  // Starts every op that can start if may(lane), and sets the pace of all running ops. Returns
  // whether any runs.
  template <class May>
  bool start_ready(May&& may) {
    unsigned active = 0;
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      Runner& runner = runners_[lane];
      if (!runner.running && !runner.ended && !blocked(lane) && may(lane)) {
        const Step& step = runner.steps[runner.step];
        runner.running = true;
        runner.start = runner.since = now_;
        runner.remaining = step.work;
        runner.pace = 0;
        std::int64_t& begin = answer_.calls[index(runner.call)].begin;
        if (begin < 0) begin = now_;
      }
      if (runner.running) active |= 1U << runner.kind;
    }
    for (Runner& runner : runners_) {
      if (runner.running) set_pace(runner, question_.pace[runner.kind][active]);
    }
    return active != 0;
  }

  [[nodiscard]] std::int64_t next_end() const {
    std::int64_t next = std::numeric_limits<std::int64_t>::max();
    for (const Runner& runner : runners_) {
      if (runner.running) next = std::min(next, runner.finish);
    }
    return next;
  }

  // Moves to the moment `now`, at which ops may end.
  void complete_ended(std::int64_t now) {
    now_ = now;
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      Runner& runner = runners_[lane];
      if (!runner.running || runner.finish != now_) continue;
      const Step& step = runner.steps[runner.step];
      answer_.lane_busy[runner.kind] += now_ - runner.start;
      answer_.kind_busy[index(step.kind)] += now_ - runner.start;
      answer_.calls[index(runner.call)].end = now_;
      answer_.end = now_;
      ++answer_.simulated;
      ++completed_[lane];
      runner.running = false;
      runner.blocker_position = -1;
      if (!question_.traced.empty() && question_.traced[index(runner.call)]) {
        answer_.spans.push_back({runner.call, table_.block(runner.call), step.op,
                                 static_cast<std::int32_t>(lane), runner.start, now_});
      }
      if (++runner.step < runner.count) continue;
      enter(lane, runner.call + 1);
      moved_ = true;
    }
  }

 private:
  // Moves a lane to its first op in or after a call.
  void enter(std::size_t lane, std::int32_t call) {
    Runner& runner = runners_[lane];
    runner.step = 0;
    for (; call < table_.size(); ++call) {
      const std::vector<Step>& steps = steps_[index(table_.block(call))].lanes[lane];
      if (steps.empty()) continue;
      runner.call = call;
      runner.steps = steps.data();
      runner.count = static_cast<std::int32_t>(steps.size());
      waits_.enter(lane, call);
      return;
    }
    runner.call = call;
    runner.ended = true;
  }

  // The first call that is not complete.
  [[nodiscard]] std::int32_t oldest() const {
    std::int32_t call = table_.size();
    for (const Runner& runner : runners_) call = std::min(call, runner.call);
    return call;
  }

  bool blocked(std::size_t lane) {
    Runner& runner = runners_[lane];
    if (completed_[index(runner.blocker_lane)] <= runner.blocker_position) return true;
    bool free = true;
    waits_.visit(lane, runner.steps[runner.step], [&](std::int32_t other, LanePosition position) {
      if (completed_[index(other)] > position) return true;
      runner.blocker_lane = other;
      runner.blocker_position = position;
      return free = false;
    });
    return !free;
  }

  void set_pace(Runner& runner, std::int64_t pace) const {
    if (runner.pace == pace) return;
    runner.remaining -= (now_ - runner.since) * runner.pace;
    runner.since = now_;
    runner.pace = pace;
    runner.finish =
        now_ + (pace == kWorkPerTick ? (runner.remaining + kWorkPerTick - 1) / kWorkPerTick
                                     : (runner.remaining + pace - 1) / pace);
  }

  // Records the state. If it was seen before, leaves out whole periods.
  void skip() {
    LaneState state = current();
    std::int64_t earlier = repeats_.add(state, table_.block(oldest_));
    if (untraced_until_[index(oldest_)] <= oldest_ + 1) return;
    for (; earlier >= 0; earlier = repeats_.earlier(earlier)) {
      const LaneState& then = repeats_.state(earlier);
      const std::int64_t periods = repetitions(then, state);
      if (periods == 0) continue;
      leave_out(then, state, periods);
      return;
    }
  }

  [[nodiscard]] LaneState current() const {
    LaneState state{now_, oldest_, {}, answer_.lane_busy};
    state.busy.insert(state.busy.end(), answer_.kind_busy.begin(), answer_.kind_busy.end());
    for (const Runner& runner : runners_) {
      LaneView view{runner.call, runner.step, -1};
      if (runner.running) {
        view.remaining = runner.remaining - (now_ - runner.since) * runner.pace;
        state.busy[runner.kind] += now_ - runner.start;
        const auto kind = index(runner.steps[runner.step].kind);
        state.busy[answer_.lane_busy.size() + kind] += now_ - runner.start;
      }
      state.lanes.push_back(view);
    }
    return state;
  }

  // How many more times the events between two states will repeat, exactly; 0 if never.
  [[nodiscard]] std::int64_t repetitions(const LaneState& then, const LaneState& state) {
    const std::int32_t period = state.oldest - then.oldest;
    std::int32_t newest = state.oldest;                       // call that any moving lane is at
    std::int32_t end = untraced_until_[index(state.oldest)];  // calls that may be left out
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      LaneView moved = then.lanes[lane];
      if (moved == state.lanes[lane]) {
        if (!runners_[lane].ended) end = std::min(end, blocked_until(lane));
        continue;
      }
      moved.call += period;
      if (!(moved == state.lanes[lane]) || runners_[lane].ended) return 0;
      newest = std::max(newest, moved.call);
    }
    if (end - 1 - newest < period) return 0;
    const std::int32_t same = waits_.repeated(state.oldest, end, period);
    return std::max(0, same - 1 - newest) / period;
  }

  // The latest call whose ops the lane's next op waits for; 0 when it waits for nothing.
  [[nodiscard]] std::int32_t blocked_until(std::size_t lane) {
    const Runner& runner = runners_[lane];
    std::int32_t call = 0;
    if (runner.running) return call;
    waits_.visit(lane, runner.steps[runner.step], [&](std::int32_t other, LanePosition position) {
      if (completed_[index(other)] <= position)
        call = std::max(call, table_.call_at(other, position));
      return true;
    });
    return call;
  }

  void leave_out(const LaneState& then, const LaneState& state, std::int64_t periods) {
    const std::int32_t period = state.oldest - then.oldest;
    const std::int64_t ticks = state.now - then.now;
    const auto calls = static_cast<std::int32_t>(periods) * period;
    waits_.leave_out(oldest_ + calls);
    std::int32_t newest = oldest_;
    for (std::size_t lane = 0; lane < runners_.size(); ++lane) {
      Runner& runner = runners_[lane];
      if (then.lanes[lane] == state.lanes[lane]) continue;  // ended, or far ahead and blocked
      const std::int32_t call = runner.call;
      completed_[lane] += table_.begin(call + calls, static_cast<std::int32_t>(lane)) -
                          table_.begin(call, static_cast<std::int32_t>(lane));
      const std::int32_t step = runner.step;
      enter(lane, call + calls);
      runner.step = step;
      runner.blocker_position = -1;
      runner.start += periods * ticks;
      runner.since += periods * ticks;
      runner.finish += periods * ticks;
      newest = std::max(newest, runner.call);
    }
    now_ += periods * ticks;
    for (std::size_t i = 0; i < state.busy.size(); ++i) {
      std::int64_t& sum = i < answer_.lane_busy.size()
                              ? answer_.lane_busy[i]
                              : answer_.kind_busy[i - answer_.lane_busy.size()];
      sum += periods * (state.busy[i] - then.busy[i]);
    }
    for (std::int32_t call = oldest_; call <= newest; ++call) {
      const ClockAnswer::CallSpan& before = answer_.calls[index(call - period)];
      ClockAnswer::CallSpan& span = answer_.calls[index(call)];
      // Ops that began or ended before the first of the two states are done, and those after now
      // are yet to come. The rest repeats.
      const std::int64_t begin = before.begin + ticks;
      const std::int64_t end = before.end + ticks;
      if (span.begin < 0 && before.begin >= 0 && begin < now_) span.begin = begin;
      if (before.end > then.now && end <= now_) span.end = end;
    }
    oldest_ += calls;
  }

  const ClockQuestion& question_;
  const std::vector<BlockSteps>& steps_;
  const CallTable& table_;
  Waits waits_;
  std::vector<Runner> runners_;               // of each lane
  std::vector<LanePosition> completed_;       // ops of each lane
  std::vector<std::int32_t> untraced_until_;  // [call]: the first traced call from there on
  Repeats repeats_;
  std::int64_t now_ = 0;
  std::int32_t oldest_ = 0;
  bool moved_ = false;  // a lane has moved to another call
  ClockAnswer answer_;
};

void require_progress(const PaceTable& table) {
  for (const auto& kind : table) {
    for (const std::int64_t pace : kind) FPDT_ASSERT(pace > 0);
  }
}

}  // namespace

ClockAnswer run_clock(const ClockQuestion& question) {
  require_progress(question.pace);
  const std::vector<BlockSteps> steps = steps_of(question.program, question.ticks);
  const CallTable table(question.program, question.calls);
  if (question.hazards) {
    HazardWaits waits(question.program, question.calls, table);
    return Clock<HazardWaits>(question, steps, table, std::move(waits)).run();
  }
  EdgeWaits waits(steps, table, question.program.lanes.size());
  return Clock<EdgeWaits>(question, steps, table, std::move(waits)).run();
}

std::vector<ClockAnswer> run_clocks(const std::vector<ClockQuestion>& ranks,
                                    const std::vector<Partners>& partners) {
  const Program& program = ranks.front().program;
  const std::size_t lanes = program.lanes.size();
  const CallTable table(program, ranks.front().calls);
  std::vector<std::vector<BlockSteps>> steps;
  for (const ClockQuestion& rank : ranks) {
    require_progress(rank.pace);
    steps.push_back(steps_of(program, rank.ticks));
  }
  std::vector<Clock<EdgeWaits>> clocks;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    clocks.emplace_back(ranks[rank], steps[rank], table, EdgeWaits(steps[rank], table, lanes));
    clocks.back().begin();
  }
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<std::vector<LanePosition>> came(ranks.size(), std::vector<LanePosition>(lanes));
  std::vector<std::int64_t> next(ranks.size(), 0);  // end of an op
  std::vector<bool> waits(ranks.size(), false);     // for a rank that has not come
  for (std::int64_t now = 0; now != kNever; now = *std::min_element(next.begin(), next.end())) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (next[rank] != now && !waits[rank]) continue;
      clocks[rank].complete_ended(now);
      clocks[rank].come_to(came[rank]);
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (next[rank] != now && !waits[rank]) continue;
      Clock<EdgeWaits>& clock = clocks[rank];
      waits[rank] = false;
      clock.start_ready([&](std::size_t lane) {
        const auto& others = partners[rank][index(clock.block(lane))][index(clock.op(lane))];
        const bool all = std::all_of(others.begin(), others.end(), [&](std::int32_t other) {
          return came[index(other)][lane] > clock.completed(lane);
        });
        waits[rank] = waits[rank] || !all;
        return all;
      });
      next[rank] = clock.next_end();
    }
  }
  std::vector<ClockAnswer> answers;
  for (Clock<EdgeWaits>& clock : clocks) answers.push_back(clock.finish());
  return answers;
}

}  // namespace fpdt
