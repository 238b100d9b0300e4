// Waits, messages and notices.
#include "fpdt/mpi/process.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/mpi/watchdog.h"

namespace fpdt {
namespace {

// Stands between two tests: yields while an answer may be near, then sleeps, because the cores may
// be needed by those for whom it waits.
class Pause {
 public:
  void operator()() {
    if (++tests_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void reset() { tests_ = 0; }

 private:
  static constexpr int kYields = 1000;
  int tests_ = 0;
};

}  // namespace

MpiProcess::Channel::Channel(std::int32_t number, std::size_t transfers) : number_(number) {
  reserve(transfers);
}

void MpiProcess::Channel::reserve(std::size_t transfers) {
  requests_.reserve(2 * transfers);
  if (finished_.size() < 2 * transfers) finished_.resize(2 * transfers);
  if (statuses_.size() < 2 * transfers) statuses_.resize(2 * transfers);
}

MpiProcess::Channel& MpiProcess::channel(std::int32_t number, std::size_t transfers) {
  const std::lock_guard lock(mutex_);
  for (Channel& found : channels_) {
    if (found.number_ != number) continue;
    found.reserve(transfers);
    return found;
  }
  return channels_.emplace_back(number, transfers);
}

MpiProcess::Meeting::Meeting(MpiProcess& process, Channel& channel, std::string_view where,
                             Kind kind)
    : process_(process), channel_(channel) {
  const std::lock_guard lock(process_.mutex_);
  FPDT_ASSERT(channel_.where_.empty() && !where.empty());
  channel_.where_ = where;
  channel_.since_ = Clock::now();
  if (kind == Kind::of_all) ++process_.meetings_;
}

MpiProcess::Meeting::~Meeting() {
  const std::lock_guard lock(process_.mutex_);
  channel_.where_ = {};
}

void MpiProcess::require(int code) const {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  mpi_.MPI_Error_string(code, text.data(), &length);
  throw PeerError(fmt::format("MPI: {}", text.data()));
}

// The part of the bytes that begins at `first` and goes as one message.
template <class Byte>
std::span<Byte> MpiProcess::piece(std::span<Byte> bytes, std::int64_t first) const {
  const std::size_t at = std::min(index(first), bytes.size());
  return bytes.subspan(at, std::min(index(options_.piece.value), bytes.size() - at));
}

void MpiProcess::exchange(Channel& channel, std::span<const Transfer> transfers) {
  std::size_t longest = 0;
  for (const Transfer& transfer : transfers) {
    longest = std::max({longest, transfer.send.size(), transfer.receive.size()});
  }
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(longest);
       first += options_.piece.value) {
    try {
      post(channel, transfers, first);
      for (const Transfer& transfer : transfers) {
        if (transfer.peer != place_.process) continue;
        const std::span<const std::byte> bytes = piece(transfer.send, first);
        if (!bytes.empty())
          std::memcpy(piece(transfer.receive, first).data(), bytes.data(), bytes.size());
      }
      wait(channel);
    } catch (...) {
      abandon(channel);
      throw;
    }
  }
}

// Each process hears from the one 1, 2, 4, ... before it, and thus from all.
void MpiProcess::barrier(Channel& channel) {
  const std::int64_t processes = place_.processes;
  std::byte sent{};
  std::byte received{};
  for (std::int64_t step = 1; step < processes; step *= 2) {
    const std::int64_t next = (place_.process + step) % processes;
    const std::int64_t previous = (place_.process + processes - step) % processes;
    exchange(channel, std::array{Transfer{next, std::span(&sent, 1), {}},
                                 Transfer{previous, {}, std::span(&received, 1)}});
  }
}

// Starts the pieces of all transfers that begin at byte `first`. Receives come first, so that
// messages find their place.
void MpiProcess::post(Channel& channel, std::span<const Transfer> transfers, std::int64_t first) {
  const std::lock_guard lock(mutex_);
  listen();
  throw_if_failed();
  channel.requests_.clear();
  channel.open_ = 0;
  for (const Transfer& transfer : transfers) {
    const std::span<std::byte> bytes = piece(transfer.receive, first);
    if (bytes.empty() || transfer.peer == place_.process) continue;
    require(mpi_.MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), mpi_.byte,
                           static_cast<int>(transfer.peer), channel.number_, messages_,
                           &channel.requests_.emplace_back(mpi_.no_request)));
    ++channel.open_;
  }
  for (const Transfer& transfer : transfers) {
    const std::span<const std::byte> bytes = piece(transfer.send, first);
    if (bytes.empty() || transfer.peer == place_.process) continue;
    require(mpi_.MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), mpi_.byte,
                           static_cast<int>(transfer.peer), channel.number_, messages_,
                           &channel.requests_.emplace_back(mpi_.no_request)));
    ++channel.open_;
  }
}

// Call it with the lock held.
MpiProcess::Progress MpiProcess::test(Channel& channel) {
  if (channel.open_ == 0) return Progress::done;
  int count = 0;
  const int code =
      mpi_.MPI_Testsome(static_cast<int>(channel.requests_.size()), channel.requests_.data(),
                        &count, channel.finished_.data(), channel.statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : std::span(channel.statuses_).first(index(count))) {
      require(status.MPI_ERROR);
    }
  }
  require(code);
  channel.open_ -= count;
  if (channel.open_ == 0) return Progress::done;
  return count == 0 ? Progress::none : Progress::some;
}

void MpiProcess::wait(Channel& channel) {
  Clock::time_point moved = Clock::now();
  for (Pause pause;; pause()) {
    Progress progress = Progress::none;
    {
      const std::lock_guard lock(mutex_);
      listen();  // first, because this also completes messages that `test` would find only later
      progress = test(channel);
      if (progress == Progress::done) return;
      throw_if_failed();
    }
    if (progress == Progress::some) {
      moved = Clock::now();
      pause.reset();
    } else if (Clock::now() - moved > deadline()) {
      give_up(channel.where_);
    }
  }
}

// Takes back what has not begun, and gives what has begun some time to end: the memory may be freed
// afterwards.
void MpiProcess::abandon(Channel& channel) noexcept {
  constexpr std::chrono::milliseconds kEnough{200};
  const Clock::time_point until = Clock::now() + kEnough;
  try {
    {
      const std::lock_guard lock(mutex_);
      for (MPI_Request& request : channel.requests_) {
        if (request != mpi_.no_request) mpi_.MPI_Cancel(&request);
      }
    }
    for (Pause pause; Clock::now() < until; pause()) {
      const std::lock_guard lock(mutex_);
      if (test(channel) == Progress::done) return;
    }
  } catch (const std::exception&) {  // the failure that led here is the one to report
  }
}

// Call each function from here to throw_if_failed with the lock held.

void MpiProcess::expect_notice() {
  require(mpi_.MPI_Irecv(&incoming_, sizeof(incoming_), mpi_.byte, MPI_ANY_SOURCE, 0, notices_,
                         &listening_));
}

void MpiProcess::listen() {
  while (true) {
    int arrived = 0;
    require(mpi_.MPI_Test(&listening_, &arrived, MPI_STATUS_IGNORE));
    if (arrived == 0) break;
    const Notice notice = incoming_;
    expect_notice();
    hear(notice);
  }
  outgoing_.remove_if([this](Outgoing& one) {
    int sent = 0;
    require(mpi_.MPI_Test(&one.request, &sent, MPI_STATUS_IGNORE));
    return sent != 0;
  });
}

void MpiProcess::hear(const Notice& notice) {
  const std::int64_t from = notice.process;
  switch (notice.kind) {
    case Notice::Kind::failure:
      causes_.emplace(from, static_cast<int>(notice.number));
      if (!failed_) {
        failed_ = {static_cast<ExitCode>(notice.number), from, notice.text.data()};
      }
      break;
    case Notice::Kind::question: {
      const Answer own = own_answer();
      Notice answer(Notice::Kind::answer, place_.process, own.meetings, own.where);
      answer.waited_ms = own.waited.count();
      tell(from, answer);
      break;
    }
    case Notice::Kind::answer:
      answers_[from] = {notice.number, std::chrono::milliseconds(notice.waited_ms),
                        notice.text.data()};
      break;
    case Notice::Kind::arrival:
      arrived_[index(from)] = true;
      if (notice.number != 0) causes_.emplace(from, static_cast<int>(notice.number));
      break;
  }
}

// How far this process is: the oldest of its meetings.
MpiProcess::Answer MpiProcess::own_answer() const {
  const Channel* oldest = nullptr;
  for (const Channel& channel : channels_) {
    if (channel.where_.empty()) continue;
    if (oldest == nullptr || channel.since_ < oldest->since_) oldest = &channel;
  }
  if (oldest == nullptr) return {meetings_, {}, ""};
  return {meetings_,
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - oldest->since_),
          std::string(oldest->where_)};
}

void MpiProcess::tell(std::int64_t process, const Notice& notice) {
  Outgoing& one = outgoing_.emplace_back(Outgoing{notice, mpi_.no_request});
  require(mpi_.MPI_Isend(&one.notice, sizeof(one.notice), mpi_.byte, static_cast<int>(process), 0,
                         notices_, &one.request));
}

void MpiProcess::tell_others(const Notice& notice) {
  for (std::int64_t process = 0; process < place_.processes; ++process) {
    if (process != place_.process) tell(process, notice);
  }
}

std::string MpiProcess::reason() const {
  if (failed_->process == place_.process) return failed_->what;
  return fmt::format("rank {}: {}", failed_->process, failed_->what);
}

void MpiProcess::throw_if_failed() const {
  if (failed_) throw PeerError(reason());
}

void MpiProcess::fail(const Failure& failure) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    listen();
    if (failed_) return;
    failed_ = failure;
    causes_.emplace(failure.process, static_cast<int>(failure.code));
    tell_others(
        {Notice::Kind::failure, failure.process, static_cast<int>(failure.code), failure.what});
  } catch (const std::exception&) {  // the others learn it at their deadline
  }
}

std::optional<Failure> MpiProcess::failure() {
  const std::lock_guard lock(mutex_);
  listen();
  return failed_;
}

// The deadline has passed: finds out who is late, tells everybody, and throws it.
void MpiProcess::give_up(std::string_view where) {
  ask_everybody();
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    text = blame(where);
  }
  fail({ExitCode::peer_lost, place_.process, text});
  const std::lock_guard lock(mutex_);
  throw PeerError(reason());
}

void MpiProcess::ask_everybody() {
  const Clock::time_point until = Clock::now() + options_.grace;
  for (Pause pause; Clock::now() < until; pause()) {
    const std::lock_guard lock(mutex_);
    if (!asked_) tell_others({Notice::Kind::question, place_.process, 0, ""});
    asked_ = true;
    listen();
    if (failed_ || std::ssize(answers_) == place_.processes - 1) return;
  }
}

// Call it with the lock held. Names who does not respond; or else, who is behind; or else, who came
// last to where everybody waits.
std::string MpiProcess::blame(std::string_view where) const {
  std::map<std::int64_t, Answer> all = answers_;
  all[place_.process] = own_answer();
  std::vector<std::int64_t> silent;
  for (std::int64_t process = 0; process < place_.processes; ++process) {
    if (all.count(process) == 0) silent.push_back(process);
  }
  const auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  };
  const std::string waited =
      fmt::format("rank {} waited {} s in {}", place_.process, seconds(deadline()), where);
  if (!silent.empty()) {
    return fmt::format("rank {} {} not respond: {}", fmt::join(silent, ", "),
                       silent.size() == 1 ? "does" : "do", waited);
  }
  std::int64_t least = meetings_, most = meetings_;
  for (const auto& [process, answer] : all) {
    least = std::min(least, answer.meetings);
    most = std::max(most, answer.meetings);
  }
  std::string behind, late, everybody;
  const auto add = [](std::string& text, const std::string& who) {
    text += (text.empty() ? "" : ", ") + who;
  };
  for (const auto& [process, answer] : all) {
    const std::string who = fmt::format("rank {} waits in {}", process, answer.where);
    add(everybody, who);
    if (answer.meetings == least) add(behind, who);
    if (answer.waited < deadline() / 2)
      add(late, fmt::format("{} since {} s", who, seconds(answer.waited)));
  }
  if (least == most) return fmt::format("{}: {}", waited, late.empty() ? everybody : late);
  return fmt::format("{} and has begun {} meetings, others {}: {}", behind, least, most, waited);
}

}  // namespace fpdt
