// Begins, ends, removes and reads the files of flight records.
#include "fpdt/flight/directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/flight/map.h"
#include "fpdt/io/file.h"
#include "fpdt/io/schedule_file.h"
#include "fpdt/runtime/threads.h"
#include "fpdt/schedule/print.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

std::string schedule_path(const std::string& directory) {
  return (fs::path(directory) / "flight-schedule.json").string();
}

// The endings of the names of the files of ranks.
constexpr std::string_view kRecord = "flight";
constexpr std::string_view kLog = "log";

std::string rank_path(const std::string& directory, std::int64_t rank, std::string_view ending) {
  return (fs::path(directory) / fmt::format("rank-{:05}.{}", rank, ending)).string();
}

// The rank in the name of a file; nothing for other files.
std::optional<std::int64_t> rank_of(const fs::path& path, std::string_view ending) {
  const std::string name = path.filename().string();
  constexpr std::string_view kStart = "rank-";
  std::int64_t rank = -1;
  if (!name.starts_with(kStart)) return {};
  std::from_chars(name.data() + kStart.size(), name.data() + name.size(), rank);
  if (rank < 0 || name != rank_path("", rank, ending)) return {};
  return rank;
}

// The files of ranks, by rank.
std::vector<fs::path> files_in(const std::string& directory, std::string_view ending,
                               std::error_code& error) {
  std::vector<fs::path> files;
  for (fs::directory_iterator next(directory, error), end; !error && next != end;
       next.increment(error)) {
    if (rank_of(next->path(), ending)) files.push_back(next->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

constexpr std::chrono::milliseconds kPulse{100};

}  // namespace

FlightDirectory::FlightDirectory(std::string path, World& world, const Schedule& schedule, Say say)
    : path_(std::move(path)), world_(world), say_(std::move(say)) {
  agree(world_, [&] { lock(); });
  if (path_.empty()) return;
  try {
    begin(schedule);
    pulse_ = start_thread([this] { pulse(); });
  } catch (...) {
    recorders_.clear();
    log_.reset();
    remove();
    say_(fmt::format("fpdt-run: {}; rank {} goes on without a flight record\n",
                     current_error().what(), world_.place().present.front()));
  }
}

FlightDirectory::~FlightDirectory() {
  if (!pulse_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  pulse_.join();
}

// Reports only that another run holds the lock. `begin` reports other errors.
void FlightDirectory::lock() {
  if (path_.empty() || !world_.speaks()) return;
  std::error_code ignored;
  fs::create_directories(path_, ignored);
  lock_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  throw InputError(
      fmt::format("{}: another run keeps its flight records there; name another directory", path_));
}

void FlightDirectory::begin(const Schedule& schedule) {
  const std::string text = print(schedule);
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw IoError(fmt::format("{}: {}", path_, error.message()));
  remove_old();
  if (world_.speaks()) write_file_atomically(schedule_path(path_), text);
  const std::int64_t lanes = std::ssize(Program(schedule).lanes);
  for (const std::int64_t rank : world_.place().present) {
    recorders_.push_back(std::make_unique<FlightRecorder>(
        rank_path(path_, rank, kRecord), FlightTitle{.rank = rank,
                                                     .ranks = schedule.ranks,
                                                     .lanes = lanes,
                                                     .schedule = content_hash(text)}));
  }
  if (!world_.speaks()) log_.emplace(rank_path(path_, world_.place().process, kLog));
}

// Removes what earlier runs left of the present ranks, and of ranks that this job does not have.
void FlightDirectory::remove_old() const {
  const std::vector<std::int64_t>& present = world_.place().present;
  for (const std::string_view ending : {kRecord, kLog}) {
    std::error_code ignored;
    for (const fs::path& file : files_in(path_, ending, ignored)) {
      const std::int64_t rank = *rank_of(file, ending);
      const bool mine = std::find(present.begin(), present.end(), rank) != present.end();
      if (mine || (world_.speaks() && rank >= world_.place().ranks)) fs::remove(file, ignored);
    }
  }
}

// All ranks have begun their records when they learn the number of the job. So a record without a
// number belongs to a job that is not older than it.
void FlightDirectory::join() {
  std::int64_t begun = 0;
  for (const auto& recorder : recorders_) begun = std::max(begun, recorder->begin_time());
  const std::int64_t job = largest(world_, begun);
  for (const auto& recorder : recorders_) recorder->join(job);
}

void FlightDirectory::pulse() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    for (const auto& recorder : recorders_) recorder->pulse();
    changed_.wait_for(lock, kPulse);
  }
}

FlightRecorder* FlightDirectory::of(std::int64_t rank) const {
  const std::vector<std::int64_t>& present = world_.place().present;
  const auto found = std::find(present.begin(), present.end(), rank) - present.begin();
  return found < std::ssize(recorders_) ? recorders_[static_cast<std::size_t>(found)].get()
                                        : nullptr;
}

void FlightDirectory::enter(FlightPhase phase, std::int64_t step) {
  for (const auto& recorder : recorders_) recorder->enter(phase, step);
}

int FlightDirectory::watch(const std::function<int()>& work) {
  try {
    join();
    const int code = work();
    enter(FlightPhase::done, 0);
    world_.gather("");  // the failure of one process keeps the files of all
    remove();
    return code;
  } catch (...) {
    note_failure();
    throw;
  }
}

void FlightDirectory::note_failure() {
  const Error error = current_error();
  // When processes agree to fail, each throws the error of one of them, whose rank it begins with.
  const std::string mine = fmt::format("rank {}: ", world_.place().process);
  const bool own =
      error.code() != ExitCode::peer_lost &&
      (!world_.has_agreed_to_fail() || std::string_view(error.what()).starts_with(mine));
  const std::int64_t now = flight_clock();
  for (const auto& recorder : recorders_) recorder->fail(error, own, now);
  if (log_) say_(fmt::format("fpdt-run: {}\n", error.what()));
}

void FlightDirectory::remove() {
  if (path_.empty()) return;
  std::error_code ignored;
  for (const std::int64_t rank : world_.place().present) {
    fs::remove(rank_path(path_, rank, kRecord), ignored);
  }
  if (world_.speaks()) fs::remove(schedule_path(path_), ignored);
}

namespace {

// The records in a directory, and why others cannot be read.
struct FlightFiles {
  std::vector<FlightRecord> records;
  std::vector<std::pair<std::int64_t, std::string>> damaged;  // by rank
};

FlightFiles read_files(const std::string& path) {
  FlightFiles files;
  std::error_code error;
  const std::vector<fs::path> paths = files_in(path, kRecord, error);
  if (error) throw IoError(fmt::format("{}: {}", path, error.message()));
  for (const fs::path& file : paths) {
    try {
      FlightRecord record = parse_flight(read_file(file.string(), kFlightBytesMax), file.string());
      if (record.title.rank != rank_of(file, kRecord)) {
        throw InputError(
            fmt::format("{}: the record of rank {}", file.string(), record.title.rank));
      }
      files.records.push_back(std::move(record));
    } catch (const Error& damage) {
      files.damaged.emplace_back(*rank_of(file, kRecord), damage.what());
    }
  }
  if (!files.records.empty()) return files;
  throw InputError(
      !files.damaged.empty()
          ? files.damaged.front().second
          : fmt::format("{}: no flight records; a run that ends well removes its own", path));
}

// Keeps the records of the latest run, and returns one of them. The number of a job is the latest
// beginning of its records, and 0 for a run that ended before its ranks had met.
FlightTitle keep_latest(std::vector<FlightRecord>& records) {
  std::int64_t job = 0;
  for (const FlightRecord& record : records) job = std::max(job, record.job);
  const auto is_newer = [&](const FlightRecord& record) { return record.begin_time > job; };
  const bool met = std::none_of(records.begin(), records.end(), is_newer);
  std::erase_if(records, [&](const FlightRecord& record) {
    return met ? record.job != job && record.job != 0 : !is_newer(record);
  });
  return std::max_element(records.begin(), records.end(),
                          [](const FlightRecord& a, const FlightRecord& b) {
                            return a.begin_time < b.begin_time;
                          })
      ->title;
}

}  // namespace

Flights read_flights(const std::string& path) {
  FlightFiles files = read_files(path);
  const FlightTitle latest = keep_latest(files.records);
  ScheduleFile file = load_schedule_file(schedule_path(path));
  Flights flights{file.schedule.schedule(), {}};
  if (latest.ranks != flights.schedule.ranks ||
      latest.schedule != content_hash(print(flights.schedule))) {
    throw InputError(fmt::format("{}: not the schedule of the run, whose hash is {}",
                                 schedule_path(path), latest.schedule));
  }
  const FlightMap map(flights.schedule);
  flights.ranks.resize(static_cast<std::size_t>(flights.schedule.ranks));
  for (std::int64_t rank = 0; rank < flights.schedule.ranks; ++rank) {
    RankFlight& one = flights.ranks[static_cast<std::size_t>(rank)];
    one.missing = "it has no record here of this run";
    const std::string log = rank_path(path, rank, kLog);
    std::error_code ignored;
    if (fs::is_regular_file(log, ignored) && fs::file_size(log, ignored) > 0) one.log = log;
  }
  for (auto& [rank, why] : files.damaged) {
    if (rank < flights.schedule.ranks) flights.ranks[static_cast<std::size_t>(rank)].missing = why;
  }
  for (FlightRecord& record : files.records) {
    const FlightTitle& title = record.title;
    if (title.ranks != latest.ranks || title.schedule != latest.schedule) continue;
    RankFlight& rank = flights.ranks[static_cast<std::size_t>(title.rank)];
    if (!map.fits(record)) {
      rank.missing =
          fmt::format("{}: a damaged flight record", rank_path(path, title.rank, kRecord));
      continue;
    }
    rank.process = process_of(record);
    rank.record = std::move(record);
  }
  return flights;
}

}  // namespace fpdt
