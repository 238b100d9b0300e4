// Calls and ops by number.
#include "fpdt/flight/map.h"

#include <algorithm>

namespace fpdt {

FlightMap::FlightMap(const Schedule& schedule) : program_(schedule) {
  std::int64_t ops = 0;
  for (const auto* calls : {&schedule.train, &schedule.evaluate}) {
    for (const Call& call : *calls) {
      ops += std::ssize(program_.blocks[static_cast<std::size_t>(call.block)].ops);
      ends_.push_back(ops);
    }
  }
}

std::optional<FlightPlace> FlightMap::at(FlightPosition position) const {
  const std::int64_t number = position.number;
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), number);
  if (position.run == 0 || end == ends_.end()) return {};
  const Schedule& schedule = *program_.schedule;
  const std::int64_t index = end - ends_.begin();
  const auto train = std::ssize(schedule.train);
  FlightPlace place;
  place.evaluates = index >= train;
  place.call_number = place.evaluates ? index - train : index;
  place.call = (place.evaluates ? schedule.evaluate
                                : schedule.train)[static_cast<std::size_t>(place.call_number)];
  const auto block = static_cast<std::size_t>(place.call.block);
  const std::vector<PlainOp>& ops = program_.blocks[block].ops;
  place.op = &ops[ops.size() - static_cast<std::size_t>(*end - number)];
  place.name = schedule.blocks[block].name + "." + place.op->op->name;
  return place;
}

bool FlightMap::fits(const FlightRecord& record) const {
  if (record.lanes.size() != program_.lanes.size()) return false;
  for (std::size_t lane = 0; lane < record.lanes.size(); ++lane) {
    const auto is_here = [&](FlightPosition position, bool collective) {
      const std::optional<FlightPlace> place = at(position);
      return place && place->op->lane == static_cast<std::int32_t>(lane) &&
             (!collective || is_collective(place->op->op->body));
    };
    const FlightLane& found = record.lanes[lane];
    if (found.last && !is_here(found.last->position, false)) return false;
    for (const FlightCollective& one : found.collectives) {
      if (!is_here(one.position, true)) return false;
    }
  }
  return true;
}

Membership FlightMap::members(const FlightPlace& place, std::int64_t rank) const {
  if (!is_collective(place.op->op->body)) return {rank, 1, 1, 0};
  return membership(group_of(*program_.schedule, place.op->op->body), rank);
}

}  // namespace fpdt
