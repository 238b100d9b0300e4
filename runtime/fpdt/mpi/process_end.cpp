// How a process enters MPI, and how it leaves.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/mpi/process.h"
#include "fpdt/mpi/watchdog.h"

namespace fpdt {
namespace {

constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::milliseconds kUntilRead{300};
constexpr int kLost = static_cast<int>(ExitCode::peer_lost);

// A process without a launcher would be a job of its own, and could meet nobody.
void require_launcher() {
  if (is_launched_by_mpi()) return;
  throw InputError(
      "MPI: no launcher started this process; start one process for each rank, as with "
      "\"mpirun --bind-to none -n RANKS fpdt-run ...\"");
}

}  // namespace

MpiProcess::MpiProcess(const MpiOptions& options)
    : options_(options), deadline_(options.deadline), mpi_((require_launcher(), libmpi())) {
  FPDT_ASSERT(options_.piece.value > 0 && options_.piece.value < (std::int64_t{2} << 30));
  initialise();
}

void MpiProcess::initialise() {
  const Watchdog started(
      deadline(),
      fmt::format("MPI: not all processes of the job started within {} s; one of them may not have "
                  "called --communicator mpi",
                  deadline().count() / 1000),
      kLost);
  int provided = MPI_THREAD_SINGLE;
  require(mpi_.MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (provided < MPI_THREAD_SERIALIZED) {
    throw InputError("MPI: this library cannot be called from several threads; use another build");
  }
  require(mpi_.MPI_Comm_set_errhandler(mpi_.world, mpi_.errors_return));
  int rank = 0;
  int size = 1;
  require(mpi_.MPI_Comm_rank(mpi_.world, &rank));
  require(mpi_.MPI_Comm_size(mpi_.world, &size));
  place_.ranks = place_.processes = size;
  place_.process = rank;
  place_.present = {rank};
  messages_ = duplicate();
  notices_ = duplicate();
  find_host();
  arrived_.resize(index(size));
  arrived_[index(rank)] = true;
  const std::lock_guard lock(mutex_);
  expect_notice();
}

MPI_Comm MpiProcess::duplicate() {
  MPI_Comm made = mpi_.no_communicator;
  require(mpi_.MPI_Comm_dup(mpi_.world, &made));
  require(mpi_.MPI_Comm_set_errhandler(made, mpi_.errors_return));
  return made;
}

// Counts hosts in the order of their first processes.
void MpiProcess::find_host() {
  MPI_Comm host = mpi_.no_communicator;
  require(mpi_.MPI_Comm_split_type(mpi_.world, MPI_COMM_TYPE_SHARED, 0, mpi_.no_info, &host));
  int local = 0;
  int locals = 1;
  require(mpi_.MPI_Comm_rank(host, &local));
  require(mpi_.MPI_Comm_size(host, &locals));
  place_.local = local;
  place_.locals = locals;
  std::int64_t first = place_.process;  // of this host
  require(mpi_.MPI_Bcast(&first, sizeof(first), mpi_.byte, 0, host));
  hosts_.resize(index(place_.processes));
  require(mpi_.MPI_Allgather(&first, sizeof(first), mpi_.byte, hosts_.data(), sizeof(first),
                             mpi_.byte, mpi_.world));
  std::vector<std::int64_t> firsts = hosts_;
  std::sort(firsts.begin(), firsts.end());
  firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
  place_.node = std::find(firsts.begin(), firsts.end(), first) - firsts.begin();
  place_.nodes = std::ssize(firsts);
}

std::vector<std::string> MpiProcess::gather(std::string_view mine) {
  const auto processes = index(place_.processes);
  const auto own = index(place_.process);
  Channel& all = channel(0, processes - 1);
  const Meeting meeting(*this, all, "an agreement of all processes");
  std::vector<std::int64_t> sizes(processes, std::ssize(mine));
  std::vector<std::string> texts(processes);
  // Each process sends to all others: the first time its size, the second time its text.
  const auto everybody = [&](std::span<const std::byte> send, auto&& receive) {
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < processes; ++i) {
      if (i != own) transfers.push_back({static_cast<std::int64_t>(i), send, receive(i)});
    }
    exchange(all, transfers);
  };
  const std::int64_t size = std::ssize(mine);
  everybody(std::as_bytes(std::span(&size, 1)),
            [&](std::size_t i) { return std::as_writable_bytes(std::span(&sizes[i], 1)); });
  for (std::size_t i = 0; i < processes; ++i) texts[i].resize(index(sizes[i]));
  texts[own] = mine;
  everybody(std::as_bytes(std::span(mine)),
            [&](std::size_t i) { return std::as_writable_bytes(std::span(texts[i])); });
  return texts;
}

int MpiProcess::leave(int code) noexcept {
  try {
    const bool together = await_arrivals(code);
    const std::unique_lock lock(mutex_);
    const int agreed = agreed_code();
    // When a process ends with an error, mpirun drops what others have printed and it has not read.
    if (agreed != 0) std::this_thread::sleep_for(kUntilRead);
    // After a failure, messages may be on their way for which nobody waits any more.
    if (together && !failed_) finalise();
    if (together) return agreed;
    // The launcher ends whoever has not arrived.
    const Watchdog ended(options_.grace, "MPI_Abort did not return", agreed);
    mpi_.MPI_Abort(mpi_.world, agreed);
    return agreed;
  } catch (const std::exception& error) {
    say_mpi(error.what());
    return code != 0 ? code : kLost;
  }
}

// Returns whether all processes have arrived. After a failure, does not wait for long.
bool MpiProcess::await_arrivals(int code) {
  Channel& all = channel(0, 1);
  const Meeting meeting(*this, all, "the end of the job");
  {
    const std::lock_guard lock(mutex_);
    listen();
    if (failed_) code = 0;  // a consequence
    if (code != 0) causes_.emplace(place_.process, code);
    tell_others({Notice::Kind::arrival, place_.process, code, ""});
  }
  std::optional<Clock::time_point> failed;
  for (Clock::time_point begin = Clock::now();; std::this_thread::sleep_for(kPoll)) {
    {
      const std::lock_guard lock(mutex_);
      listen();
      if (outgoing_.empty() && std::find(arrived_.begin(), arrived_.end(), false) == arrived_.end())
        return true;
      if (!causes_.empty() && !failed) failed = Clock::now();
    }
    if (failed && Clock::now() - *failed > options_.grace) return false;
    if (failed || Clock::now() - begin < deadline()) continue;
    try {
      give_up("the end of the job");
    } catch (const PeerError& error) {
      say_mpi(error.what());
    }
  }
}

// Call it with the lock held. Several processes may have failed before they heard of each other: of
// these, one that lost its peers counts only if there is no other, and the lowest comes first.
int MpiProcess::agreed_code() const {
  for (const auto& [process, code] : causes_) {
    if (code != kLost) return code;
  }
  return causes_.empty() ? 0 : kLost;
}

// Call it with the lock held, when all processes have arrived.
void MpiProcess::finalise() {
  const Watchdog ended(deadline(), "MPI_Finalize did not return", kLost);
  require(mpi_.MPI_Cancel(&listening_));
  int cancelled = 0;
  while (cancelled == 0) require(mpi_.MPI_Test(&listening_, &cancelled, MPI_STATUS_IGNORE));
  require(mpi_.MPI_Finalize());
}

}  // namespace fpdt
