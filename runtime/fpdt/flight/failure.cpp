// Compares the progress of ranks.
#include "fpdt/flight/failure.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace fpdt {
namespace {

using Numbers = std::vector<std::int64_t>;

bool contains(const Numbers& ranks, std::int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// One rank waits in a collective for another that has not begun it.
struct Wait {
  std::int64_t waiting = 0;
  std::int64_t awaited = 0;
  FlightPosition position;
};

class Judge {
 public:
  Judge(const Flights& flights, const FlightMap& map) : flights_(flights), map_(map) {
    for (std::int64_t rank = 0; rank < ranks(); ++rank) find_waits(rank);
  }

  Explanation explain() const {
    Explanation found = verdict();
    if (found.ranks.size() == 1) add_deeds(found, found.ranks.front());
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      const RankFlight& one = at(rank);
      if (!one.record) continue;
      found.last_time = std::max(found.last_time, one.record->last_time());
      if (!lost_a_peer(rank)) continue;
      const std::int64_t time = one.record->failure->time;
      if (!found.gave_up || time < at(*found.gave_up).record->failure->time) found.gave_up = rank;
    }
    return found;
  }

 private:
  using Progress = std::tuple<std::int64_t, FlightPosition>;

  [[nodiscard]] std::int64_t ranks() const { return std::ssize(flights_.ranks); }
  [[nodiscard]] const RankFlight& at(std::int64_t rank) const {
    return flights_.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Numbers those(const std::function<bool(std::int64_t)>& condition) const {
    Numbers found;
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      if (condition(rank)) found.push_back(rank);
    }
    return found;
  }

  [[nodiscard]] bool failed_itself(std::int64_t rank) const {
    const auto& record = at(rank).record;
    return record && record->failure && record->failure->own;
  }
  [[nodiscard]] bool lost_a_peer(std::int64_t rank) const {
    const auto& record = at(rank).record;
    return record && record->failure && !record->failure->own;
  }
  // A launcher lets a stopped process run again to end it. Then the process finds its peers lost.
  [[nodiscard]] bool paused(std::int64_t rank) const {
    constexpr std::int64_t kLong = 1'000'000'000;  // ten pulses
    return at(rank).record->silence >= kLong;
  }
  [[nodiscard]] bool ended(std::int64_t rank) const {
    const auto& record = at(rank).record;
    return record && (record->failure || record->phase == FlightPhase::done);
  }
  [[nodiscard]] bool share_process(std::int64_t a, std::int64_t b) const {
    const auto& one = at(a).record;
    const auto& other = at(b).record;
    return one && other && one->machine == other->machine && one->process == other->process;
  }

  // Adds what the rank did, for a cause that is about this rank alone.
  void add_deeds(Explanation& found, std::int64_t rank) const {
    found.op = op_of(rank);
    found.lateness = lateness(rank);
    for (const Wait& wait : waits_) {
      if (wait.awaited != rank) continue;
      if (!contains(found.waiting, wait.waiting)) found.waiting.push_back(wait.waiting);
      found.awaited = std::min(found.awaited.value_or(wait.position), wait.position);
    }
  }

  // A lane that is in a collective waits for the members whose lane has not come there. Whether a
  // device has come to what was launched is unknown, but it cannot pass it without them.
  void find_waits(std::int64_t rank) {
    if (!at(rank).record) return;
    const std::vector<FlightLane>& lanes = at(rank).record->lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const std::optional<FlightOp>& last = lanes[lane].last;
      if (!last || (last->state != FlightState::running && last->state != FlightState::launched)) {
        continue;
      }
      const Membership members = map_.members(*map_.at(last->position), rank);
      for (std::int64_t i = 0; i < members.size; ++i) {
        const std::int64_t other = members.first + i * members.stride;
        if (other == rank) continue;
        const auto& record = at(other).record;
        const bool there = record && record->lanes[lane].last &&
                           record->lanes[lane].last->position >= last->position;
        if (!there) waits_.push_back({rank, other, last->position});
      }
    }
  }

  [[nodiscard]] bool waits(std::int64_t rank) const {
    return std::any_of(waits_.begin(), waits_.end(),
                       [&](const Wait& wait) { return wait.waiting == rank; });
  }
  [[nodiscard]] bool awaited(std::int64_t rank) const {
    return std::any_of(waits_.begin(), waits_.end(),
                       [&](const Wait& wait) { return wait.awaited == rank; });
  }

  // Phases entered, then the furthest op that was begun. A rank without a record has none.
  [[nodiscard]] Progress progress(std::int64_t rank) const {
    const auto& record = at(rank).record;
    if (!record) return {0, {}};
    FlightPosition furthest;
    for (const FlightLane& lane : record->lanes) {
      if (lane.last) furthest = std::max(furthest, lane.last->position);
    }
    return {record->phases, furthest};
  }

  // When a rank was last known to be alive. Never, without a record.
  [[nodiscard]] std::int64_t last_time(std::int64_t rank) const {
    return at(rank).record ? at(rank).record->last_time() : 0;
  }

  // Leaves out the ranks that were alive clearly later than the first of the pool.
  [[nodiscard]] Numbers first_silent(Numbers pool) const {
    constexpr std::int64_t kClearly = 500'000'000;  // five pulses
    const auto earlier = [&](std::int64_t a, std::int64_t b) {
      return last_time(a) < last_time(b);
    };
    const std::int64_t first = last_time(*std::min_element(pool.begin(), pool.end(), earlier));
    std::erase_if(pool, [&](std::int64_t rank) { return last_time(rank) - first > kClearly; });
    return pool;
  }

  // The ranks of a pool that hold the others up, as far as positions show.
  [[nodiscard]] Numbers least_advanced(Numbers pool) const {
    const auto narrow = [&](const auto& condition) {
      const auto end = std::partition(pool.begin(), pool.end(), condition);
      if (end != pool.begin()) pool.erase(end, pool.end());
    };
    narrow([&](std::int64_t rank) { return awaited(rank); });
    narrow([&](std::int64_t rank) { return !waits(rank); });
    if (pool.empty()) return pool;
    const auto less = [&](std::int64_t a, std::int64_t b) { return progress(a) < progress(b); };
    const Progress least = progress(*std::min_element(pool.begin(), pool.end(), less));
    narrow([&](std::int64_t rank) { return progress(rank) == least; });
    std::sort(pool.begin(), pool.end());
    return pool;
  }

  [[nodiscard]] Explanation verdict() const {
    const Numbers failed = those([&](std::int64_t rank) { return failed_itself(rank); });
    if (!failed.empty()) return first_of(failed);
    const Numbers open = those([&](std::int64_t rank) { return !ended(rank); });
    const auto in_state = [&](FlightProcess state) {
      Numbers found = open;
      std::erase_if(
          found, [&](std::int64_t rank) { return at(rank).record && at(rank).process != state; });
      return found;
    };
    const Numbers gone = in_state(FlightProcess::gone);
    if (!gone.empty()) return gone_of(first_silent(gone));
    const Numbers stopped = in_state(FlightProcess::stopped);
    if (!stopped.empty()) return about(FirstCause::stopped, least_advanced(stopped));
    const Numbers lost = those([&](std::int64_t rank) { return lost_a_peer(rank); });
    const Numbers silent =
        those([&](std::int64_t rank) { return lost_a_peer(rank) && paused(rank); });
    if (open.empty() && !silent.empty()) return about(FirstCause::silent, least_advanced(silent));
    if (!lost.empty()) return about(FirstCause::behind, least_advanced(open.empty() ? lost : open));
    const Numbers known = in_state(FlightProcess::running);
    return about(known.size() == open.size() ? FirstCause::nothing : FirstCause::behind,
                 least_advanced(open));
  }

  // Finds the ranks that are gone among those that fell silent first. If all were killed at once,
  // waits show only where each rank happened to be.
  [[nodiscard]] Explanation gone_of(const Numbers& silent) const {
    const Numbers least = least_advanced(silent);
    // A process ends as a whole.
    Numbers ended = those([&](std::int64_t rank) {
      return contains(least, rank) || share_process(rank, least.front());
    });
    if (std::ssize(silent) < ranks() || std::ssize(ended) == ranks()) {
      return about(FirstCause::gone, std::move(ended));
    }
    Explanation found = about(FirstCause::gone, silent);
    found.behind = std::move(ended);
    return found;
  }

  static Explanation about(FirstCause cause, Numbers ranks) {
    Explanation found;
    found.cause = cause;
    found.ranks = std::move(ranks);
    return found;
  }

  // A failure of the whole process, or one that all ranks see, is recorded by each of them.
  [[nodiscard]] Explanation first_of(Numbers failed) const {
    const auto failure = [&](std::int64_t rank) { return *at(rank).record->failure; };
    const auto first = *std::min_element(
        failed.begin(), failed.end(),
        [&](std::int64_t a, std::int64_t b) { return failure(a).time < failure(b).time; });
    std::erase_if(failed, [&](std::int64_t rank) {
      return failure(rank).code != failure(first).code || failure(rank).text != failure(first).text;
    });
    return about(FirstCause::failed, std::move(failed));
  }

  [[nodiscard]] std::optional<FlightOp> op_of(std::int64_t rank) const {
    std::optional<FlightOp> found;
    if (!at(rank).record) return found;
    for (const FlightLane& lane : at(rank).record->lanes) {
      if (!lane.last || lane.last->state == FlightState::done) continue;
      if (lane.last->state == FlightState::failed) return lane.last;
      if (!found || lane.last->position < found->position) found = lane.last;
    }
    return found;
  }

  // The lateness over the collectives that all members have begun. Nothing if there are none, or if
  // the members have different clocks.
  [[nodiscard]] std::optional<Lateness> lateness(std::int64_t rank) const {
    if (!at(rank).record) return {};
    Lateness found;
    std::vector<std::int64_t> delays;
    const std::vector<FlightLane>& lanes = at(rank).record->lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (const FlightCollective& own : lanes[lane].collectives) {
        const Membership members = map_.members(*map_.at(own.position), rank);
        std::int64_t first = own.begin;
        std::int64_t last = own.begin;
        bool complete = members.size > 1;
        for (std::int64_t i = 0; complete && i < members.size; ++i) {
          const auto begin = arrival(members.first + i * members.stride, rank, lane, own.position);
          complete = begin.has_value();
          first = std::min(first, begin.value_or(first));
          last = std::max(last, begin.value_or(last));
        }
        if (!complete) continue;
        ++found.collectives;
        found.last += last == own.begin ? 1 : 0;
        delays.push_back(own.begin - first);
      }
    }
    if (delays.empty()) return {};
    const auto middle = delays.begin() + std::ssize(delays) / 2;
    std::nth_element(delays.begin(), middle, delays.end());
    found.median = *middle;
    return found;
  }

  // When a rank on the machine of `peer` began a collective.
  [[nodiscard]] std::optional<std::int64_t> arrival(std::int64_t rank, std::int64_t peer,
                                                    std::size_t lane,
                                                    FlightPosition position) const {
    const auto& record = at(rank).record;
    if (!record || record->machine != at(peer).record->machine) return {};
    for (const FlightCollective& one : record->lanes[lane].collectives) {
      if (one.position == position) return one.begin;
    }
    return {};
  }

  const Flights& flights_;
  const FlightMap& map_;
  std::vector<Wait> waits_;
};

}  // namespace

Explanation explain(const Flights& flights, const FlightMap& map) {
  return Judge(flights, map).explain();
}

}  // namespace fpdt
