// The edges that the programs share: exit codes, checked output, signals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "fpdt/base/error.h"

namespace fpdt {

// Does its work and returns the exit code of the program.
using Command = std::function<int()>;

// Runs a command and returns the exit code of the program: what `command` returns, or the code of
// what it throws, whose message goes to standard error.
int guarded(std::string_view program, const Command& command);

enum class Tone : std::uint8_t { strong, good, bad };

// Results go to standard output and are complete, or it is an IoError; but a reader may leave. All
// text passes `printable`, here and in `say`, so that no name from a file controls the terminal.
void print_result(std::string_view text);
// Prints `text` after a word, which has a tone if standard output understands it.
void print_result(Tone tone, std::string_view word, std::string_view text);

// The columns that lines of results may have: those of the terminal, at least 60 and at most 160;
// 100 where standard output is none.
std::size_t output_columns();

// Whether the descriptor is a terminal that escape sequences mean something to.
bool understands_escapes(int descriptor);

// JSON whose keys keep their order.
using Json = nlohmann::ordered_json;

// A value as one line. Numbers that are not finite are null, bytes that are not UTF-8 are replaced.
std::string json_line(const Json& value);

// Talk goes to standard error. If nobody can hear it (a closed terminal, a full disk), work goes
// on. `before` and `after` are control sequences of our own.
void say(std::string_view text, std::string_view before = "", std::string_view after = "");

// Whether this process may report a wrong flag. Of several that a launcher started with the same
// flags, only the first may.
bool speaks_for_job();

// How many processes a launcher started together with this one: 1 without a launcher.
std::int64_t launched_processes();

// Call it first in main. A pipe without a reader and a file over its limit become errors of the
// call that meets them, not signals. Closed standard descriptors are held, so that no file of ours
// gets their numbers and what was meant for a person.
void prepare_process();

// From now on SIGINT and SIGTERM ask to stop; a second one ends the program at once.
void catch_stop_signals();
// Asks a run to save and to end with success. Launchers pass it on, or leave it to ranks.
inline constexpr int kFinishSignal = 12;  // SIGUSR2
// From now on kFinishSignal does that. Call it early: a process that does not catch the signal
// ends.
void catch_finish_signal();
// The signal that asked, or 0.
int stop_signal();

}  // namespace fpdt
