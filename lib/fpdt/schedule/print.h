// The printer: a schedule as its one canonical JSON text, byte for byte the same for equal
// schedules.
//
// One buffer, one state and one op per line; constants that equal their defaults are left out;
// calls are written run-length, with `n` counting the repetitions. The last key is a hash of the
// text before it.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Precondition: references resolve.
std::string print(const Schedule& schedule);

// 64-bit FNV-1a as 16 hexadecimal digits. The value of the key "hash" is the hash of the text
// before that key, without its leading comma.
std::string content_hash(std::string_view text);

}  // namespace fpdt
