// Stores of the recorder, and the reader, which trusts no byte.
#include "fpdt/runtime/flight.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <type_traits>
#include <unistd.h>

#include <fmt/format.h>

#include "fpdt/base/assert.h"

namespace fpdt {
namespace {

constexpr std::uint64_t kMagic = 0x0174'6c66'7464'7066;  // "fpdtflt" and the format, 1
// Collectives that a lane keeps. With its other words the lane fills whole cache lines.
constexpr std::size_t kRing = 63;

using Word = std::uint64_t;
using Time = std::int64_t;

// The file: a header, then the lanes. Words that change are stored one by one, atomically.
struct FlightHeader {
  Word magic = 0;  // stored when the rest of the title is there
  std::int64_t rank = 0, ranks = 0, lanes = 0;
  std::int64_t process = 0, process_start = 0;
  Time wall = 0, steady = 0;  // the same moment by both clocks
  std::array<char, 64> host{};
  std::array<char, 128> machine{};
  std::array<char, 24> schedule{};
  // From here on the words change.
  std::int64_t job = 0;
  Time pulse = 0;
  Time silence = 0;
  Word phase = 0;
  Time phase_time = 0;
  Word failure = 0;  // exit code + 1, and kOwn; stored when time and text are there
  Time failure_time = 0;
  std::array<char, 1008> text{};
};

struct RingSlot {
  Word position = 0;  // 0: being replaced
  Time begin = 0;
  Time end = 0;
};

struct LaneSlot {
  Word last = 0;  // position and state
  Time time = 0;
  Word collectives = 0;  // begun so far
  std::array<RingSlot, kRing> ring{};
};

static_assert(std::is_trivially_copyable_v<FlightHeader> && sizeof(FlightHeader) % 64 == 0);
static_assert(std::is_trivially_copyable_v<LaneSlot> && sizeof(LaneSlot) % 64 == 0);

constexpr int kRunBit = 32;
constexpr int kStateBits = 2;
constexpr int kStepBits = 32;
constexpr int kPhaseBit = 56;
constexpr Word kOwn = 1 << 8;

Word word_of(FlightPosition position, FlightState state) {
  return Word{position.run} << kRunBit | Word{position.number} << kStateBits |
         static_cast<Word>(state);
}

FlightPosition position_of(Word word) {
  return {static_cast<std::uint32_t>(word >> kRunBit),
          static_cast<std::uint32_t>(word) >> kStateBits};
}

FlightState state_of(Word word) {
  return static_cast<FlightState>(word & ((Word{1} << kStateBits) - 1));
}

template <class T>
void store(T& target, std::type_identity_t<T> value) {
  std::atomic_ref<T>(target).store(value, std::memory_order_release);
}

template <class T>
T load(T& source) {
  return std::atomic_ref<T>(source).load(std::memory_order_relaxed);
}

// A silence that ends now, without a pulse in it. Several threads may note the same one.
void note_silence(FlightHeader& head, Time now) {
  const Time last = load(head.pulse);
  if (last == 0) return;
  const std::atomic_ref<Time> longest(head.silence);
  Time known = longest.load();
  while (known < now - last && !longest.compare_exchange_weak(known, now - last)) {
  }
}

FlightHeader& header(std::span<std::byte> bytes) {
  return *std::launder(reinterpret_cast<FlightHeader*>(bytes.data()));
}

LaneSlot& lane_slot(std::span<std::byte> bytes, std::int64_t lane) {
  auto* const first = reinterpret_cast<LaneSlot*>(bytes.data() + sizeof(FlightHeader));
  return *std::launder(first + lane);
}

std::size_t file_bytes(std::int64_t lanes) {
  return sizeof(FlightHeader) + static_cast<std::size_t>(lanes) * sizeof(LaneSlot);
}

template <std::size_t size>
void copy_text(std::array<char, size>& target, std::string_view text) {
  text = text.substr(0, size - 1);
  std::copy(text.begin(), text.end(), target.begin());
}

template <std::size_t size>
std::string text_of(const std::array<char, size>& source) {
  std::string text(source.data(), strnlen(source.data(), size));
  for (char& c : text) {
    if (c == '\n') c = ' ';
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = '?';
  }
  return text;
}

// A small file of the system; "" if it cannot be read.
std::string system_text(const std::string& path) {
  std::string text(4096, '\0');
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  text.resize(file ? std::fread(text.data(), 1, text.size(), file.get()) : 0);
  return text;
}

std::string host_name() {
  std::array<char, 64> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? text_of(name) : "";
}

// The boot of the kernel, and the space of process numbers.
std::string machine_name() {
  std::string boot = system_text("/proc/sys/kernel/random/boot_id");
  boot.resize(std::min(boot.find('\n'), boot.size()));
  std::array<char, 64> space{};
  if (::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) return boot;
  return fmt::format("{} {}", boot, space.data());
}

struct ProcessEntry {
  char state = 'X';
  std::int64_t start = 0;  // ticks since the machine started
};

// The entry of a process; nothing if there is no such process.
std::optional<ProcessEntry> process_entry(std::int64_t process) {
  const std::string text = system_text(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return {};
  ProcessEntry entry;
  long long start = 0;
  // Fields 3 and 22 of proc(5).
  const int found = std::sscanf(text.c_str() + name_end + 1,
                                " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                "%*s %*s %*s %lld",
                                &entry.state, &start);
  if (found != 2) return {};
  entry.start = start;
  return entry;
}

std::int64_t wall_clock() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

[[noreturn]] void refuse_file(int descriptor, const std::string& path, int error) {
  if (descriptor >= 0) {
    ::close(descriptor);
    ::unlink(path.c_str());
  }
  throw IoError(fmt::format("{}: {}", path, std::strerror(error)));
}

std::span<std::byte> map_file(const std::string& path, std::size_t bytes) {
  ::unlink(path.c_str());  // a hung process may still have the file of this name mapped
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) refuse_file(file, path, errno);
  const int full = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (full != 0) refuse_file(file, path, full);
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) refuse_file(file, path, errno);
  ::close(file);
  return {static_cast<std::byte*>(address), bytes};
}

}  // namespace

FlightRecorder::FlightRecorder(const std::string& path, const FlightTitle& title)
    : bytes_(map_file(path, file_bytes(title.lanes))) {
  auto* const head = new (bytes_.data()) FlightHeader;
  for (std::int64_t lane = 0; lane < title.lanes; ++lane) {
    new (bytes_.data() + file_bytes(lane)) LaneSlot;
  }
  head->rank = title.rank;
  head->ranks = title.ranks;
  head->lanes = title.lanes;
  head->process = ::getpid();
  head->process_start = process_entry(head->process).value_or(ProcessEntry{}).start;
  head->wall = wall_clock();
  head->steady = flight_clock();
  copy_text(head->host, host_name());
  copy_text(head->machine, machine_name());
  copy_text(head->schedule, title.schedule);
  enter(FlightPhase::starting, 0);
  store(head->magic, kMagic);
}

FlightRecorder::~FlightRecorder() { ::munmap(bytes_.data(), bytes_.size()); }

std::int64_t FlightRecorder::begin_time() const noexcept { return header(bytes_).wall; }

void FlightRecorder::join(std::int64_t job) noexcept { store(header(bytes_).job, job); }

void FlightRecorder::pulse() noexcept {
  FlightHeader& head = header(bytes_);
  const Time time = flight_clock();
  note_silence(head, time);
  store(head.pulse, time);
}

void FlightRecorder::enter(FlightPhase phase, std::int64_t step) noexcept {
  FlightHeader& head = header(bytes_);
  ++phases_;
  store(head.phase_time, flight_clock());
  store(head.phase, static_cast<Word>(phase) << kPhaseBit | (phases_ & 0xFF'FFFF) << kStepBits |
                        static_cast<std::uint32_t>(step));
}

void FlightRecorder::begin(std::int32_t lane, FlightPosition position, bool collective) noexcept {
  LaneSlot& slot = lane_slot(bytes_, lane);
  const Word word = word_of(position, FlightState::running);
  const Time time = flight_clock();
  if (collective) {
    const Word count = load(slot.collectives);
    RingSlot& entry = slot.ring[count % kRing];
    store(entry.position, 0);
    store(entry.end, 0);
    store(entry.begin, time);
    store(entry.position, word);
    store(slot.collectives, count + 1);
  }
  store(slot.time, time);
  store(slot.last, word);
}

void FlightRecorder::end(std::int32_t lane, FlightState state) noexcept {
  LaneSlot& slot = lane_slot(bytes_, lane);
  const FlightPosition position = position_of(load(slot.last));
  const Time time = flight_clock();
  RingSlot& entry = slot.ring[(load(slot.collectives) + kRing - 1) % kRing];
  if (state != FlightState::failed && position_of(load(entry.position)) == position) {
    store(entry.end, time);
  }
  store(slot.time, time);
  store(slot.last, word_of(position, state));
}

void FlightRecorder::all_done() noexcept {
  for (std::int64_t lane = 0; lane < header(bytes_).lanes; ++lane) {
    LaneSlot& slot = lane_slot(bytes_, lane);
    const Word last = load(slot.last);
    if (last == 0 || state_of(last) != FlightState::launched) continue;
    store(slot.time, flight_clock());
    store(slot.last, word_of(position_of(last), FlightState::done));
  }
}

void FlightRecorder::fail(const Error& error, bool own, std::int64_t time) noexcept {
  FlightHeader& head = header(bytes_);
  if (load(head.failure) != 0) return;
  // A process that was stopped and runs again may end before its next pulse.
  note_silence(head, flight_clock());
  copy_text(head.text, error.what());
  store(head.failure_time, time);
  store(head.failure, (static_cast<Word>(error.code()) + 1) | (own ? kOwn : 0));
}

std::int64_t flight_clock() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::int64_t FlightRecord::last_time() const {
  std::int64_t last = std::max(phase_time, pulse_time);
  if (failure) last = std::max(last, failure->time);
  for (const FlightLane& lane : lanes) {
    if (lane.last) last = std::max(last, lane.last->time);
  }
  return last;
}

namespace {

// A file may hold any number. The difference of two such times does not overflow.
Time plausible(Time time) { return std::clamp(time, Time{0}, std::numeric_limits<Time>::max()); }

// Times of the record as times of day.
class Calendar {
 public:
  explicit Calendar(const FlightHeader& head)
      : ahead_(static_cast<Word>(head.wall) - static_cast<Word>(head.steady)) {}
  [[nodiscard]] Time operator()(Time steady) const {
    return plausible(static_cast<Time>(static_cast<Word>(steady) + ahead_));
  }

 private:
  Word ahead_;
};

FlightLane parse_lane(const LaneSlot& slot, const Calendar& calendar) {
  FlightLane lane;
  if (slot.last != 0) {
    lane.last = FlightOp{position_of(slot.last), state_of(slot.last), calendar(slot.time)};
  }
  for (std::size_t i = 0; i < kRing; ++i) {
    const RingSlot& entry = slot.ring[(slot.collectives + i) % kRing];
    if (entry.position == 0) continue;
    lane.collectives.push_back({position_of(entry.position), calendar(entry.begin),
                                entry.end == 0 ? 0 : calendar(entry.end)});
  }
  return lane;
}

}  // namespace

FlightRecord parse_flight(std::string_view bytes, const std::string& path) {
  const auto require = [&](bool good, std::string_view what) {
    if (!good) throw InputError(fmt::format("{}: {}", path, what));
  };
  FlightHeader head;
  require(bytes.size() >= sizeof head, "too short for a flight record");
  std::memcpy(&head, bytes.data(), sizeof head);
  require(head.magic == kMagic, head.magic == 0 ? "its process ended before the flight record began"
                                                : "not a flight record of this version");
  require(head.lanes >= 0 && head.lanes <= kFlightBytesMax / static_cast<Time>(sizeof(LaneSlot)) &&
              bytes.size() == file_bytes(head.lanes),
          "a damaged flight record: its size does not fit its lanes");
  constexpr Time kMost = std::numeric_limits<std::int32_t>::max();
  require(head.rank >= 0 && head.rank < head.ranks && head.ranks <= kMost,
          "a damaged flight record: its rank is out of range");
  require(head.process >= 1 && head.process <= kMost,
          "a damaged flight record: it is of no process");
  require(head.job == 0 || head.job >= head.wall,
          "a damaged flight record: it is younger than its job");
  const auto phase = static_cast<std::size_t>(head.phase >> kPhaseBit);
  require(phase < words<FlightPhase>().size(), "a damaged flight record: it has an unknown phase");
  constexpr auto kCodeMax = static_cast<Word>(ExitCode::numeric);
  const Word code = head.failure & ~kOwn;
  require(code <= kCodeMax + 1 && (code != 0 || head.failure == 0),
          "a damaged flight record: it has an unknown exit code");

  const Calendar calendar(head);
  FlightRecord record;
  record.title = {head.rank, head.ranks, head.lanes, text_of(head.schedule)};
  record.job = head.job;
  record.begin_time = calendar(head.steady);
  record.pulse_time = head.pulse == 0 ? 0 : calendar(head.pulse);
  record.silence = plausible(head.silence);
  record.host = text_of(head.host);
  record.machine = text_of(head.machine);
  record.process = head.process;
  record.process_start = head.process_start;
  record.phase = static_cast<FlightPhase>(phase);
  record.phases = static_cast<std::int64_t>(head.phase >> kStepBits & 0xFF'FFFF);
  record.step = static_cast<std::uint32_t>(head.phase);
  record.phase_time = calendar(head.phase_time);
  if (head.failure != 0) {
    record.failure = FlightFailure{static_cast<ExitCode>(code - 1), (head.failure & kOwn) != 0,
                                   calendar(head.failure_time), text_of(head.text)};
  }
  for (std::int64_t i = 0; i < head.lanes; ++i) {
    LaneSlot slot;
    std::memcpy(&slot, bytes.data() + file_bytes(i), sizeof slot);
    record.lanes.push_back(parse_lane(slot, calendar));
  }
  return record;
}

FlightProcess process_of(const FlightRecord& record) {
  if (record.machine != machine_name()) return FlightProcess::unknown;
  const std::optional<ProcessEntry> entry = process_entry(record.process);
  if (!entry || entry->start != record.process_start) return FlightProcess::gone;
  if (entry->state == 'Z' || entry->state == 'X') return FlightProcess::gone;
  return entry->state == 'T' || entry->state == 't' ? FlightProcess::stopped
                                                    : FlightProcess::running;
}

}  // namespace fpdt
