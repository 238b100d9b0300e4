// A directory of flight records: one file for each rank, and the schedule that explains them.
// Beside them, each process but the first logs what it says.
//
//   flights/flight-schedule.json
//   flights/rank-00000.flight
//   flights/rank-00001.flight
//   flights/rank-00001.log
//
// The records of a run that ends well are removed, its logs stay. A process that cannot keep
// records goes on without, and says so.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fpdt/flight/rank_log.h"
#include "fpdt/io/file.h"
#include "fpdt/runtime/flight.h"
#include "fpdt/runtime/world.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// The records of the present ranks of a process, while it runs.
class FlightDirectory {
 public:
  // Tells a person something, on standard error.
  using Say = std::function<void(const std::string&)>;

  // Together: begins a record of each present rank; none if `path` is "". What forbids that is
  // said. InputError when another run keeps records there. World and schedule must outlive this.
  FlightDirectory(std::string path, World& world, const Schedule& schedule, Say say);
  ~FlightDirectory();
  FlightDirectory(const FlightDirectory&) = delete;
  FlightDirectory& operator=(const FlightDirectory&) = delete;

  // Whether what this process says goes to its log.
  [[nodiscard]] bool logs() const { return log_.has_value(); }

  // Null: the rank has no record.
  [[nodiscard]] FlightRecorder* of(std::int64_t rank) const;

  // Notes the phase on every present rank.
  void enter(FlightPhase phase, std::int64_t step);

  // Together: does the work of the run and returns its exit code. Notes what it throws. If no
  // process throws, the files are removed.
  int watch(const std::function<int()>& work);

 private:
  void lock();
  void begin(const Schedule& schedule);
  void remove_old() const;
  void join();
  void pulse();
  void note_failure();
  void remove();

  std::string path_;
  World& world_;
  Say say_;
  FileDescriptor lock_;  // of the directory; process 0 holds it for all
  std::optional<RankLog> log_;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;  // of the present ranks
  std::mutex mutex_;                                        // guards the next two
  std::condition_variable changed_;
  bool over_ = false;
  std::thread pulse_;
};

// One rank of a job, as a reader finds it.
struct RankFlight {
  std::optional<FlightRecord> record;
  FlightProcess process = FlightProcess::unknown;
  std::string missing{};  // why there is no record
  std::string log{};      // path of its log; "" if it said nothing
};

struct Flights {
  Schedule schedule;  // verified
  std::vector<RankFlight> ranks;
};

// Reads the records of the latest run in a directory. InputError when it holds none, or when the
// schedule is not that of the run. Files that are damaged count as missing.
Flights read_flights(const std::string& path);

}  // namespace fpdt
