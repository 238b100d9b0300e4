// This process in MPI: all calls of the library, behind one lock, and none that waits.
//
// Every thread waits in the same way. It starts sends and receives, tests them under the lock, and
// yields or sleeps outside of it. The group of sends and receives is the primitive (`exchange`);
// collectives and small messages are built on it. Each test also takes the notices of other
// processes: whoever fails tells all others, so every wait anywhere ends with PeerError.
//
// A wait without progress ends at the deadline. Then the process asks all others how far they are,
// and names those who do not respond, or who have begun the fewest meetings, or who came last to
// the same one. Who waits for whom would name the wrong one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/mpi/libmpi.h"
#include "fpdt/mpi/notice.h"
#include "fpdt/mpi/open.h"
#include "fpdt/runtime/awake_clock.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

// One message each way between this process and another, or itself. Both may be empty.
struct Transfer {
  std::int64_t peer = 0;
  std::span<const std::byte> send;
  std::span<std::byte> receive;
};

class MpiProcess {
 public:
  // Initialises MPI. Errors as for open_mpi.
  explicit MpiProcess(const MpiOptions& options);
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  [[nodiscard]] const Place& place() const { return place_; }
  // Whether another process is on this host.
  [[nodiscard]] bool is_near(std::int64_t process) const {
    return hosts_[static_cast<std::size_t>(process)] ==
           hosts_[static_cast<std::size_t>(place_.process)];
  }

  // The means by which one thread at a time meets other processes. Messages of different channels
  // do not mix, and messages of one channel between two processes arrive in order.
  class Channel;
  // The channel of a number, in which one exchange has at most so many transfers. The channel of
  // number 0 belongs to the World.
  Channel& channel(std::int32_t number, std::size_t transfers);

  // One meeting of this process, of which the others hear when they ask.
  class Meeting {
   public:
    // Every process begins as many of the meetings `of_all`, so their count compares processes. A
    // message between two is not one of them. `where` must outlive the meeting.
    enum class Kind : bool { message, of_all };
    Meeting(MpiProcess& process, Channel& channel, std::string_view where,
            Kind kind = Kind::of_all);
    ~Meeting();
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

   private:
    MpiProcess& process_;
    Channel& channel_;
  };

  // Within a meeting. Sends and receives all of it, in pieces. Peers must do the same. Allocates
  // nothing. Throws PeerError.
  void exchange(Channel& channel, std::span<const Transfer> transfers);
  // Within a meeting. Waits until all processes have called it. Throws PeerError.
  void barrier(Channel& channel);

  // The functions of World.
  std::vector<std::string> gather(std::string_view mine);
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  void fail(const Failure& failure) noexcept;
  [[nodiscard]] std::optional<Failure> failure();
  int leave(int code) noexcept;

 private:
  using Clock = AwakeClock;
  enum class Progress : std::uint8_t { none, some, done };
  struct Answer {
    std::int64_t meetings = 0;
    std::chrono::milliseconds waited{0};
    std::string where;
  };
  struct Outgoing {
    Notice notice;
    MPI_Request request;
  };

  void initialise();
  void find_host();
  MPI_Comm duplicate();
  void require(int code) const;

  template <class Byte>
  [[nodiscard]] std::span<Byte> piece(std::span<Byte> bytes, std::int64_t first) const;
  void post(Channel& channel, std::span<const Transfer> transfers, std::int64_t first);
  Progress test(Channel& channel);
  void wait(Channel& channel);
  void abandon(Channel& channel) noexcept;

  void expect_notice();
  void listen();
  void hear(const Notice& notice);
  void tell(std::int64_t process, const Notice& notice);
  void tell_others(const Notice& notice);
  void throw_if_failed() const;
  [[nodiscard]] std::string reason() const;
  [[nodiscard]] Answer own_answer() const;
  [[noreturn]] void give_up(std::string_view where);
  void ask_everybody();
  [[nodiscard]] std::string blame(std::string_view where) const;

  bool await_arrivals(int code);
  [[nodiscard]] int agreed_code() const;
  void finalise();

  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }

  const MpiOptions options_;
  std::atomic<std::chrono::milliseconds> deadline_;
  const LibMpi& mpi_;
  Place place_;
  std::vector<std::int64_t> hosts_;  // by process: the first process of its host
  MPI_Comm messages_ = nullptr, notices_ = nullptr;

  std::mutex mutex_;  // held in every call of the library; guards the rest
  std::deque<Channel> channels_;
  std::int64_t meetings_ = 0;  // of all, begun so far
  Notice incoming_;
  MPI_Request listening_ = nullptr;
  std::list<Outgoing> outgoing_;
  std::optional<Failure> failed_;       // the first that this process knows
  std::map<std::int64_t, int> causes_;  // exit codes of processes that failed by themselves
  std::vector<bool> arrived_;           // by process: at the end of the job
  bool asked_ = false;                  // whether this process has asked how far the others are
  std::map<std::int64_t, Answer> answers_;
};

class MpiProcess::Channel {
 public:
  Channel(std::int32_t number, std::size_t transfers);

 private:
  friend class MpiProcess;
  void reserve(std::size_t transfers);

  std::int32_t number_;
  std::string_view where_;        // of the running meeting; empty when there is none
  AwakeClock::time_point since_;  // when it began
  std::vector<MPI_Request> requests_;
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  std::ptrdiff_t open_ = 0;  // requests that are not complete
};

}  // namespace fpdt
