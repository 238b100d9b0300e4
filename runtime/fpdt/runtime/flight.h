// The flight record of a rank: how far it got, in a file that outlives its process.
//
// The file is mapped and shared, so what a rank stored is there for others even after SIGKILL. No
// handler runs. A record holds no names: it says "op 812 of run 3", and the schedule says the rest.
// So every record of an op is one word, which is there or not there. A time is stored before the
// word that it belongs to.
//
// The ops of a run are numbered in issue order, those of schedule.evaluate after those of
// schedule.train. All ranks run the same ops, so run and number compare the progress of ranks.
//
// A process tells now and then that it is alive. Of processes that all are gone, the one that fell
// silent first is known by that, and one that was stopped for a while by its longest silence.
//
// Size: 1.3 KiB, and 1.5 KiB for each lane. An op costs two readings of the clock and four stores,
// a collective six stores more. Nothing in a step allocates or calls the system.
//
//   FlightRecorder recorder("flights/rank-00003.flight", {.rank = 3, ...});
//   recorder.enter(FlightPhase::training, 12);
//   ...
//   const FlightRecord record = parse_flight(read_file(path), path);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/base/words.h"
#include "fpdt/schedule/op.h"

namespace fpdt {

// The phase of a rank's process. The process of every rank enters the same phases in the same
// order.
enum class FlightPhase : std::uint8_t { starting, loading, training, evaluating, saving, done };
constexpr auto words_of(FlightPhase) {
  return word_list("starting", "loading", "training", "evaluating", "saving", "done");
}

// failed: it threw the first error of its rank. launched: a device has it, and the host cannot see
// whether it runs.
enum class FlightState : std::uint8_t { failed, running, launched, done };
constexpr auto words_of(FlightState) { return word_list("failed", "running", "launched", "done"); }

// An op of a run of the schedule. Runs count from 1; 0: none yet.
struct FlightPosition {
  static constexpr std::int64_t kOpsMax = std::int64_t{1} << 30;
  std::uint32_t run = 0;
  std::uint32_t number = 0;  // below kOpsMax
  auto operator<=>(const FlightPosition&) const = default;
};

// The head of a record.
struct FlightTitle {
  std::int64_t rank = 0, ranks = 1;
  std::int64_t lanes = 0;  // of the program
  std::string schedule{};  // hash of its content
};

class FlightRecorder {
 public:
  // Creates the file anew, and leaves one of that name to whoever still writes it. Its blocks are
  // allocated here, so that a full disk is an IoError now and not a SIGBUS later.
  FlightRecorder(const std::string& path, const FlightTitle& title);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // When the record began, in nanoseconds since 1970.
  [[nodiscard]] std::int64_t begin_time() const noexcept;

  // Says which job the rank belongs to. `job`: the latest begin_time of its ranks.
  void join(std::int64_t job) noexcept;

  // Notes that the process is alive. Call it from any one thread, at regular times.
  void pulse() noexcept;

  // For the thread that owns the run. `step`: the step that the phase belongs to.
  void enter(FlightPhase phase, std::int64_t step) noexcept;

  // For the thread that runs or launches the ops of the lane.
  void begin(std::int32_t lane, FlightPosition position, bool collective) noexcept;
  void end(std::int32_t lane, FlightState state) noexcept;

  // Notes that all launched ops have ended. Call it while no op runs.
  void all_done() noexcept;

  // Keeps the first failure of the rank. own: it is not the news of a failure elsewhere. `time`: of
  // flight_clock().
  void fail(const Error& error, bool own, std::int64_t time) noexcept;

 private:
  std::span<std::byte> bytes_;  // the mapping
  std::uint64_t phases_ = 0;    // entered so far
};

// Nanoseconds of std::chrono::steady_clock, which all processes of a host share.
std::int64_t flight_clock() noexcept;

// One op in the record of its rank. Without a recorder it does nothing.
struct FlightMark {
  FlightRecorder* recorder = nullptr;
  FlightPosition position;

  void begin(std::int32_t lane, const Op& op) const noexcept {
    if (recorder != nullptr) recorder->begin(lane, position, is_collective(op.body));
  }
  void end(std::int32_t lane, FlightState state) const noexcept {
    if (recorder != nullptr) recorder->end(lane, state);
  }
};

// --- What a reader finds. Times are nanoseconds since 1970 by the clock of the rank's host.

struct FlightOp {
  FlightPosition position;
  FlightState state = FlightState::running;
  std::int64_t time = 0;  // when it got into this state
};

struct FlightCollective {
  FlightPosition position;
  std::int64_t begin = 0;  // the rank arrived
  std::int64_t end = 0;    // the rank left; 0: it did not
};

struct FlightLane {
  std::optional<FlightOp> last;
  std::vector<FlightCollective> collectives;  // the last ones, oldest first
};

struct FlightFailure {
  ExitCode code = ExitCode::internal;
  bool own = true;
  std::int64_t time = 0;
  std::string text;
};

struct FlightRecord {
  FlightTitle title;
  std::int64_t job = 0;  // 0: the rank has not joined
  std::string host;
  std::string machine;  // the running kernel and its process numbers, unlike any other
  std::int64_t process = 0, process_start = 0;
  std::int64_t begin_time = 0;
  FlightPhase phase = FlightPhase::starting;
  std::int64_t phases = 0;  // entered so far
  std::int64_t step = 0;
  std::int64_t phase_time = 0;
  std::optional<FlightFailure> failure;
  std::vector<FlightLane> lanes;
  std::int64_t pulse_time = 0;
  std::int64_t silence = 0;  // nanoseconds; the longest between two pulses, or pulse and failure

  // The last time that the process is known to have been alive.
  [[nodiscard]] std::int64_t last_time() const;
};

inline constexpr std::int64_t kFlightBytesMax = 1 << 20;  // of a file

// InputError when the bytes are no record: cut short, of another version, or damaged. What a killed
// process had begun to store is left out. Texts hold no control characters.
FlightRecord parse_flight(std::string_view bytes, const std::string& path);

// The state of the process that wrote a record. stopped: by a signal, or by a debugger. unknown: it
// ran on another machine.
enum class FlightProcess : std::uint8_t { running, stopped, gone, unknown };
constexpr auto words_of(FlightProcess) {
  return word_list("running", "stopped", "gone", "unknown");
}
FlightProcess process_of(const FlightRecord& record);

}  // namespace fpdt
