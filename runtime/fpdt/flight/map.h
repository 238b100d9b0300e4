// The ops of a run by the numbers that flight records give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/flight.h"
#include "fpdt/schedule/expand.h"

namespace fpdt {

// An op of a run, with the words of the schedule.
struct FlightPlace {
  const PlainOp* op = nullptr;
  std::string name;  // "forward.attn.1.0"
  Call call;
  std::int64_t call_number = 0;  // in its list of calls
  bool evaluates = false;        // the list is schedule.evaluate
};

class FlightMap {
 public:
  explicit FlightMap(const Schedule& schedule);  // must outlive this

  // Empty if no run has such an op.
  [[nodiscard]] std::optional<FlightPlace> at(FlightPosition position) const;
  // Whether every op of a record exists and is on its lane.
  [[nodiscard]] bool fits(const FlightRecord& record) const;
  // The ranks that take part in a collective with a rank; only the rank itself for other ops.
  [[nodiscard]] Membership members(const FlightPlace& place, std::int64_t rank) const;

  [[nodiscard]] const Program& program() const { return program_; }

 private:
  Program program_;
  std::vector<std::int64_t> ends_;  // of each call: number of its last op, plus one
};

}  // namespace fpdt
