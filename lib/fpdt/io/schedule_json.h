// Reads schedules from their file, the inverse of fpdt::print (fpdt/schedule/print.h).
//
// Loading checks the form: known keys, types, names that resolve, the content hash. The verifier
// checks whether the program is safe to run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Of a file. The largest known answer, gpt-oss-20b at 34M tokens in 137 chunks, has 180 MB.
inline constexpr std::int64_t kScheduleBytesMax = std::int64_t{256} << 20;

// InputError with the findings. `file_name` is for messages only. `has_hash`, when not null, tells
// whether the text has a hash: a planner writes one, and a person who edits the file removes it.
Schedule parse_schedule(std::string text, std::string_view file_name, bool* has_hash = nullptr);

// The text for a file that load_schedule accepts; InputError if it is too long for that.
std::string schedule_text(const Schedule& schedule, std::int64_t bytes_max = kScheduleBytesMax);

// Loads the file at `path`.
Schedule load_schedule(const std::string& path, bool* has_hash = nullptr);

}  // namespace fpdt
