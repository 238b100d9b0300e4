// Meetings, and the threads of the ranks that take part in them.
#include "fpdt/comm/thread.h"

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/runtime/awake_clock.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {
namespace {

// A place where the members of one group meet on one lane.
class Meeting {
 public:
  Meeting(Membership members, std::chrono::milliseconds deadline)
      : members_(members),
        deadline_(deadline),
        views_(static_cast<std::size_t>(members.size)),
        ready_(static_cast<std::size_t>(members.size)),
        done_(static_cast<std::size_t>(members.size)),
        here_(static_cast<std::size_t>(members.size), false) {}

  // Publishes the views of member `mine`, and the mark behind which they are whole. Then waits for
  // the other members.
  void gather(std::int64_t mine, std::span<const View> views, Mark ready) {
    std::unique_lock lock(mutex_);
    if (aborted_) throw PeerError(reason_);
    views_[static_cast<std::size_t>(mine)] = views;
    ready_[static_cast<std::size_t>(mine)] = ready;
    here_[static_cast<std::size_t>(mine)] = true;
    const std::uint64_t round = round_;
    if (arrive()) {
      lock.unlock();  // or those who wake would wait for it
      changed_.notify_all();
      return;
    }
    const auto over = [&] { return round_ != round || aborted_; };
    const AwakeClock::time_point end = AwakeClock::now() + deadline_;
    const std::chrono::milliseconds slice = std::min(deadline_, AwakeClock::kStride / 2);
    bool woken = false;
    do {
      woken = changed_.wait_for(lock, slice, over);
    } while (!woken && AwakeClock::now() < end);
    // A complete round counts even if a failure came later: its members rely on each other's
    // memory.
    if (round_ != round) return;
    if (aborted_) throw PeerError(reason_);
    FPDT_ASSERT(!woken);
    throw PeerError(
        fmt::format("rank {} waited {} ms for {}", rank_of(mine), deadline_.count(), absent()));
  }

  // Waits until every member has read what it needs. The wait has no deadline because every member
  // arrives: nothing blocks between the two waits, and a member that fails between them still
  // arrives. A failure elsewhere does not end the wait, because other members still read this
  // member's memory.
  void disperse(std::int64_t mine, Mark done) {
    std::unique_lock lock(mutex_);
    done_[static_cast<std::size_t>(mine)] = done;
    const std::uint64_t round = round_;
    if (arrive()) {
      lock.unlock();
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    reason_ = reason;
    changed_.notify_all();
  }

  // Valid between gather and disperse.
  [[nodiscard]] std::span<const std::span<const View>> views() const { return views_; }
  [[nodiscard]] std::span<const Mark> ready() const { return ready_; }
  // Valid after disperse, until all members have gathered again.
  [[nodiscard]] std::span<const Mark> done() const { return done_; }

 private:
  [[nodiscard]] std::int64_t rank_of(std::int64_t member) const {
    return members_.first + member * members_.stride;
  }

  // Counts one member in. Returns true for the last one.
  bool arrive() {
    if (++arrived_ != members_.size) return false;
    arrived_ = 0;
    ++round_;
    std::fill(here_.begin(), here_.end(), false);
    return true;
  }

  [[nodiscard]] std::string absent() const {
    std::string ranks;
    for (std::int64_t i = 0; i < members_.size; ++i) {
      if (here_[static_cast<std::size_t>(i)]) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "rank " : ", ", rank_of(i));
    }
    return ranks;
  }

  const Membership members_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;  // guards the rest; views_, ready_ and done_ only while they are written
  std::condition_variable changed_;
  std::vector<std::span<const View>> views_;
  std::vector<Mark> ready_, done_;
  std::vector<bool> here_;
  std::int64_t arrived_ = 0;
  std::uint64_t round_ = 0;
  bool aborted_ = false;
  std::string reason_;
};

// The state that all ranks share.
class Meetings {
 public:
  Meetings(std::int64_t ranks, const ThreadOptions& options)
      : ranks_(ranks),
        options_(options),
        everybody_(meeting({-1, -1, Membership{0, 1, ranks, 0}})) {}

  struct Place {
    std::int32_t lane = -1;
    std::ptrdiff_t group = -1;
    Membership members;
  };

  // Returns the meeting at a place. All its members get the same one.
  Meeting& meeting(const Place& place) {
    const std::lock_guard lock(mutex_);
    auto& found = meetings_[std::tuple(place.lane, place.group, place.members.first)];
    if (found == nullptr) {
      found = std::make_unique<Meeting>(place.members, options_.deadline);
      if (cause_ != nullptr) found->abort(reason_);
    }
    return *found;
  }

  void abort(std::int64_t rank, std::exception_ptr cause) noexcept {
    const std::lock_guard lock(mutex_);
    if (cause_ != nullptr) return;
    cause_ = std::move(cause);
    reason_ = fmt::format("rank {} stopped", rank);
    for (const auto& [place, meeting] : meetings_) meeting->abort(reason_);
  }

  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (cause_ != nullptr) std::rethrow_exception(cause_);
  }

  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
  [[nodiscard]] Meeting& everybody() { return everybody_; }

 private:
  const std::int64_t ranks_;
  const ThreadOptions options_;
  std::mutex mutex_;  // guards the next three
  std::map<std::tuple<std::int32_t, std::ptrdiff_t, std::int64_t>, std::unique_ptr<Meeting>>
      meetings_;
  std::exception_ptr cause_;  // the first failure
  std::string reason_;
  Meeting& everybody_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Meetings& meetings, std::int64_t rank) : meetings_(meetings), rank_(rank) {}

  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  [[nodiscard]] std::int64_t ranks() const override { return meetings_.ranks(); }
  [[nodiscard]] std::int64_t local_ranks() const override { return meetings_.ranks(); }

  void prepare(const Program& program) override {
    schedule_ = program.schedule;
    const std::size_t groups = schedule_->groups.size();
    seats_.assign(program.lanes.size() * groups, {});
    for (const PlainBlock& block : program.blocks) {
      for (const PlainOp& op : block.ops) {
        if (!is_collective(op.op->body)) continue;
        const Group& group = group_of(*schedule_, op.op->body);
        const std::ptrdiff_t number = &group - schedule_->groups.data();
        const Membership members = membership(group, rank_);
        seat(op.lane, number) = {&meetings_.meeting({op.lane, number, members}), members.mine,
                                 members.size};
      }
    }
  }

  void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                  Mover& mover) override {
    const std::ptrdiff_t number = &group_of(*schedule_, body) - schedule_->groups.data();
    const Seat& own = seat(lane, number);
    Meeting& meeting = *own.meeting;
    // Both marks of this seat may be set again: everybody who waited for them has left the meeting.
    const auto marks = 2 * static_cast<std::size_t>(number);
    meeting.gather(own.mine, views, mover.mark(marks));
    Mark taken = nullptr;
    std::exception_ptr failure;
    try {
      for (const Mark ready : meeting.ready()) mover.await(ready);
      mover.receive(body, own.mine, meeting.views());
      taken = mover.mark(marks + 1);
    } catch (...) {
      failure = std::current_exception();
    }
    meeting.disperse(own.mine, taken);
    if (failure != nullptr) std::rethrow_exception(failure);
    for (const Mark done : meeting.done()) mover.await(done);
    const std::int64_t peers = hop_of(body) > 0 ? 1 : own.members - 1;
    count(true, peers * bytes_to_each(body, own.members, views));
  }

  void barrier() override { meetings_.everybody().gather(rank_, {}, nullptr); }

  void abort(std::exception_ptr cause) noexcept override {
    meetings_.abort(rank_, std::move(cause));
  }

 private:
  struct Seat {
    Meeting* meeting = nullptr;
    std::int64_t mine = 0, members = 1;
  };
  Seat& seat(std::int32_t lane, std::ptrdiff_t group) {
    return seats_[static_cast<std::size_t>(lane) * schedule_->groups.size() +
                  static_cast<std::size_t>(group)];
  }

  Meetings& meetings_;
  const std::int64_t rank_;
  const Schedule* schedule_ = nullptr;
  std::vector<Seat> seats_;  // [lane][group]
};

}  // namespace

void run_ranks(std::int64_t ranks, const std::function<void(Communicator&)>& rank_main,
               const ThreadOptions& options) {
  FPDT_ASSERT(ranks >= 1);
  Meetings meetings(ranks, options);
  // No rank begins before every thread exists. Otherwise ranks could wait for one that failed to
  // start.
  std::promise<bool> complete;
  const std::shared_future<bool> may_begin(complete.get_future());
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      threads.push_back(start_thread([&meetings, &rank_main, may_begin, rank] {
        if (!may_begin.get()) return;
        ThreadCommunicator communicator(meetings, rank);
        try {
          rank_main(communicator);
        } catch (...) {
          communicator.abort(std::current_exception());
        }
      }));
    }
  } catch (...) {
    meetings.abort(std::ssize(threads), std::current_exception());
  }
  complete.set_value(std::ssize(threads) == ranks);
  for (std::thread& thread : threads) thread.join();
  meetings.rethrow();
}

}  // namespace fpdt
