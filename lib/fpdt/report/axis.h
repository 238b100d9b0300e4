// Numbers as people read them on an axis, and the positions of its ticks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/base/units.h"

namespace fpdt {

// "812 ns", "45.3 µs", "1.23 ms", "12.3 s", "2 min 05 s", "1 h 03 min".
std::string format_nanoseconds(std::int64_t nanoseconds);
std::string format_seconds(double seconds);

// "87 %", "0.3 %". Requires whole > 0.
std::string format_percent(double part, double whole);

struct Tick {
  std::int64_t at = 0;
  std::string label;
};

// Round times in [from, to], counted from `zero`, all in one unit, about `count` at most.
std::vector<Tick> time_ticks(std::int64_t from, std::int64_t to, std::int64_t zero,
                             std::int64_t count);

// Round sizes from 0 to at most `most`, all in one unit.
std::vector<Tick> byte_ticks(Bytes most, std::int64_t count);

}  // namespace fpdt
