// Outcomes as words and as JSON, for every verb that shows them.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "fpdt/plan/answers/outcome.h"
#include "fpdt/plan/methods/published.h"

#include "common/command.h"

namespace fpdt {

// "+1.50 GiB", "-3.00 MiB", "0".
std::string format_change(Bytes now, Bytes before);

// "fits", or what does not: "no: host".
std::string verdict_text(const Outcome& outcome);

// "the least found needs 46.0 GiB, and there is 23.6 GiB", of the strategies that the pins leave.
std::string need_text(const Pins& pins, Bytes need, Bytes have);

bool wastes(const Wasted& wasted);
// "its implementation wastes 960 MiB of a device, 0 B of a host per rank and 12.2 s".
std::string waste_text(const Wasted& wasted);
// The same beside a plan that does not include it, and what the plan would be with it.
std::string waste_beside(const Problem& problem, const Plan& plan, const Wasted& wasted);
Json waste_json(const std::optional<Wasted>& wasted);

// What gathering experts sends, and what sending tokens to them would.
std::string experts_text(const ExpertsTraffic& sent);
Json experts_json(const ExpertsTraffic& sent);

// "a step takes 1 day 5 h: ..." for steps of over 12 hours, of which the figure alone is easily
// misread; empty for others.
std::string long_step_text(double seconds);

// "49.4 / 97.4 %": causal, and as published papers count, over the full square.
std::string mfu_text(const Outcome& outcome);

// The keys that all objects about a strategy share: its shape; its speed at typical rates, and from
// slow to fast ones; all that an outcome is.
Json shape_json(const Problem& problem, const Strategy& strategy);
Json speed_json(const std::array<Throughput, 3>& throughput);
Json outcome_json(const Problem& problem, const Outcome& outcome);

}  // namespace fpdt
