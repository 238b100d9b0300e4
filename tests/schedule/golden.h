// The hand-written schedules of tests/golden, and functions that damage them.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "fpdt/schedule/schedule.h"

namespace fpdt::test {

std::string golden_text(std::string_view name);
Schedule golden(std::string_view name);
// Overwrites a file with its canonical text.
void write_golden(std::string_view name);

Block& block_of(Schedule& schedule, std::string_view block);
Op& op_of(Schedule& schedule, std::string_view block, std::string_view op);
Buffer& buffer_of(Schedule& schedule, std::string_view buffer);

template <class Body>
Body& body_of(Schedule& schedule, std::string_view block, std::string_view op) {
  return std::get<Body>(op_of(schedule, block, op).body);
}

// The codes of the verifier's findings.
std::set<std::string> codes(const Schedule& schedule);

// The edges of all ops as text, for comparing.
std::string edges_text(const Schedule& schedule);

}  // namespace fpdt::test
