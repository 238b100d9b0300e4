// The processes of a job, as one of them sees them between steps.
//
// A process holds one rank, or all of them. Within a step, ranks meet in a Communicator. Between
// steps, processes meet here: they tell each other what they loaded, whether they shall stop, and
// who failed. All data lie in host memory.
//
// Functions marked `together` are called by every process, in the same order, on the thread that
// owns the run. They throw PeerError when a process has failed, or when the deadline passed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// Where a process stands. With several processes, process p holds rank p and no other.
struct Place {
  std::int64_t ranks = 1;
  std::vector<std::int64_t> present{0};  // the ranks of this process, ascending
  std::int64_t process = 0, processes = 1;
  std::int64_t node = 0, nodes = 1;    // hosts, counted in the order of their first process
  std::int64_t local = 0, locals = 1;  // among the processes of this host
};

// Why a process cannot go on.
struct Failure {
  ExitCode code = ExitCode::internal;
  std::int64_t process = 0;
  std::string what;
};

// The values that must be the same on every process, by name.
using Facts = std::vector<std::pair<std::string, std::string>>;

class World {
 public:
  explicit World(Place place) : place_(std::move(place)) {}
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] const Place& place() const { return place_; }
  // Whether this process speaks for all of them: it prints, logs and commits files.
  [[nodiscard]] bool speaks() const { return place_.process == 0; }
  // Precondition: 0 <= rank < ranks. With one process, its own number, even for an absent rank.
  [[nodiscard]] std::int64_t process_of(std::int64_t rank) const {
    return place_.processes == 1 ? 0 : rank;
  }
  // Whether every rank is present somewhere. False for one rank that runs alone (comm/local.h).
  [[nodiscard]] bool complete() const;

  // Together: the bytes of every process, by process. For small messages.
  virtual std::vector<std::string> gather(std::string_view mine) = 0;

  // Move bytes of any number from one process to another. Only these two call, both with the same
  // number of bytes. Between two processes messages arrive in order. Neither may be this process.
  virtual void send(std::int64_t process, std::span<const std::byte> bytes) = 0;
  virtual void receive(std::int64_t process, std::span<std::byte> bytes) = 0;

  // Tells every process that this one cannot go on. They learn it wherever they wait, now or
  // later, as a PeerError. Only the first failure counts.
  virtual void fail(const Failure& failure) noexcept = 0;

  // How long a later wait for other processes may last without progress.
  virtual void set_deadline(std::chrono::milliseconds) {}

  // The first failure that this process knows of, its own or another's. Any thread may ask.
  [[nodiscard]] virtual std::optional<Failure> failure() const { return {}; }

  // Ends the job for this process: the last call. `code` is what it would exit with. Returns the
  // code to exit with: that of the first failure of any process. When all processes arrive with
  // success, they have left together. After a failure, waits only briefly for the others.
  virtual int leave(int code) noexcept = 0;

  // Whether the same error was thrown in every process, so that nobody need be told.
  [[nodiscard]] bool has_agreed_to_fail() const { return has_agreed_to_fail_; }

 private:
  friend void agree(World& world, const std::function<void()>& work);
  friend void require_same(World& world, const Facts& mine);

  Place place_;
  bool has_agreed_to_fail_ = false;
};

// Calls rank_main for every present rank, each on its own thread with its own end of the
// collectives; one of several processes calls it on the calling thread. Returns when all calls have
// returned.
using RankMain = std::function<void(Communicator&)>;
using Connect = std::function<void(const RankMain&)>;

// Together: runs `work` here, and returns when every process has done its own. If some of them
// throw an Error, every process throws one: that of the highest exit code, of the lowest process
// among those. With several processes its text begins with "rank 3: ".
void agree(World& world, const std::function<void()>& work);

// The same for work that returns something.
template <class Work>
auto agreed(World& world, Work&& work) {
  std::optional<decltype(work())> result;
  agree(world, [&] { result.emplace(work()); });
  return std::move(*result);
}

// Together: the sum over all processes.
std::int64_t sum(World& world, std::int64_t mine);

// Together: the largest value of any process.
std::int64_t largest(World& world, std::int64_t mine);

// Together: the text of one process.
std::string broadcast(World& world, std::string_view text, std::int64_t process);

// Together: throws InputError, which names who differs in what, unless all give the same facts. One
// may lack facts that others have.
void require_same(World& world, const Facts& mine);

}  // namespace fpdt
