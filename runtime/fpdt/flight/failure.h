// The first cause of a failure, from the flight records of all ranks.
//
// Who waits for whom does not tell it alone: a dead rank makes others wait, and these make more
// ranks wait. So the cause is looked for in this order:
//
//   1. the rank that was first to record a failure of its own (not that a peer was lost);
//   2. of the ranks that are gone without a record of their end, those that fell silent clearly
//      before the others. Where a launcher ends the job, it ends the others later. If nobody
//      outlived the others, it is all of them;
//   3. the ranks whose process was stopped, now or for a while;
//   4. of those, or else of the ranks that have not ended while others gave up: the ranks that
//      others wait for in a collective and that wait for nobody; of these, the one with the least
//      progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fpdt/flight/directory.h"
#include "fpdt/flight/map.h"

namespace fpdt {

// failed: it recorded a failure of its own. gone: its process is gone, or has no record at all.
// stopped: its process is stopped by a signal. silent: its process did not run for a while, and
// then lost its peers. behind: it has the least progress, and nothing more is known. nothing: no
// rank has failed, as far as records and processes show.
enum class FirstCause : std::uint8_t { failed, gone, stopped, silent, behind, nothing };
constexpr auto words_of(FirstCause) {
  return word_list("failed", "gone", "stopped", "silent", "behind", "nothing");
}

// How often a rank was the last to arrive at the collectives that its record still holds.
struct Lateness {
  std::int64_t last = 0, collectives = 0;
  std::int64_t median = 0;  // nanoseconds behind the first member, over all of them
};

struct Explanation {
  FirstCause cause = FirstCause::nothing;
  // The ranks that the cause is about: one, or several that the records cannot tell apart. For
  // `nothing`: the ranks with the least progress.
  std::vector<std::int64_t> ranks;
  // Where all processes fell silent at once: the ranks with the least progress, if these are fewer.
  std::vector<std::int64_t> behind{};
  // From here to `lateness`, members are empty unless the cause is about one rank. `op`: the op
  // that failed, or the earliest one in issue order that has not ended; empty between runs.
  std::optional<FlightOp> op;
  // The ranks that wait for it, and the first collective in which they do.
  std::vector<std::int64_t> waiting;
  std::optional<FlightPosition> awaited;
  std::optional<Lateness> lateness;
  // The first of all ranks to give up because of another, and the last time at which one is known
  // to have been alive.
  std::optional<std::int64_t> gave_up;
  std::int64_t last_time = 0;
};

Explanation explain(const Flights& flights, const FlightMap& map);

}  // namespace fpdt
