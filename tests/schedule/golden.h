// The hand-written schedules of tests/golden, and words for damaging them.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "fpdt/schedule/schedule.h"

namespace fpdt::test {

std::string golden_text(std::string_view name);
Schedule golden(std::string_view name);
// Writes the canonical text of a file over it.
void write_golden(std::string_view name);

Block& block_of(Schedule& schedule, std::string_view block);
Op& op_of(Schedule& schedule, std::string_view block, std::string_view op);
Buffer& buffer_of(Schedule& schedule, std::string_view buffer);

template <class Body>
Body& body_of(Schedule& schedule, std::string_view block, std::string_view op) {
  return std::get<Body>(op_of(schedule, block, op).body);
}

// The codes that the verifier finds.
std::set<std::string> codes(const Schedule& schedule);

// Every op's edges, as text, to compare.
std::string edges_text(const Schedule& schedule);

}  // namespace fpdt::test
