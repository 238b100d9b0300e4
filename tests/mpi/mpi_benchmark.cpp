// What an all-to-all and an all-gather cost beside bare loops of MPI that move the same bytes.
//
//   mpirun --bind-to none -n 4 build/release/tests/mpi/mpi_benchmark
//
// The columns are lower quartiles in milliseconds, of the slowest process, of rounds that take
// turns. What else a machine does adds a time slice to some rounds, of which the quartile is free.
//   ours       MpiCommunicator::collective
//   messages   MPI_Isend and MPI_Irecv, then MPI_Testall and sched_yield until all are complete
//   native     MPI_Ialltoall or MPI_Iallgather, then MPI_Test and sched_yield
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <sched.h>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/mpi/libmpi.h"
#include "fpdt/mpi/open.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/communicator.h"

namespace {

using fpdt::index;

struct Buffers {
  std::int64_t ranks, rank, block;  // bytes of a block
  bool gathers;
  std::vector<std::byte> send, receive;

  std::byte* sent(std::int64_t to) { return send.data() + (gathers ? 0 : to * block); }
  std::byte* place(std::int64_t from) { return receive.data() + from * block; }
};

// Beside what the product calls.
struct Bare : fpdt::LibMpi {
  FPDT_FROM_LIBRARY(MPI_Iallgather);
  FPDT_FROM_LIBRARY(MPI_Ialltoall);
  FPDT_FROM_LIBRARY(MPI_Testall);
};
const Bare mpi{fpdt::libmpi()};

void yield_until(std::vector<MPI_Request>& requests) {
  for (int complete = 0; complete == 0;) {
    mpi.MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete,
                    MPI_STATUSES_IGNORE);
    if (complete == 0) sched_yield();
  }
}

void messages(Buffers& buffers, std::vector<MPI_Request>& requests) {
  requests.clear();
  const auto bytes = static_cast<int>(buffers.block);
  for (std::int64_t i = 1; i < buffers.ranks; ++i) {
    const std::int64_t peer = (buffers.rank + i) % buffers.ranks;
    mpi.MPI_Irecv(buffers.place(peer), bytes, mpi.byte, static_cast<int>(peer), 0, mpi.world,
                  &requests.emplace_back());
  }
  for (std::int64_t i = 1; i < buffers.ranks; ++i) {
    const std::int64_t peer = (buffers.rank + i) % buffers.ranks;
    mpi.MPI_Isend(buffers.sent(peer), bytes, mpi.byte, static_cast<int>(peer), 0, mpi.world,
                  &requests.emplace_back());
  }
  std::memcpy(buffers.place(buffers.rank), buffers.sent(buffers.rank), index(buffers.block));
  yield_until(requests);
}

void native(Buffers& buffers, std::vector<MPI_Request>& requests) {
  requests.resize(1);
  const auto bytes = static_cast<int>(buffers.block);
  if (buffers.gathers) {
    mpi.MPI_Iallgather(buffers.send.data(), bytes, mpi.byte, buffers.receive.data(), bytes,
                       mpi.byte, mpi.world, requests.data());
  } else {
    mpi.MPI_Ialltoall(buffers.send.data(), bytes, mpi.byte, buffers.receive.data(), bytes, mpi.byte,
                      mpi.world, requests.data());
  }
  yield_until(requests);
}

// A schedule of one collective of all ranks.
template <class Collective>
fpdt::Schedule schedule_of(std::int64_t ranks) {
  fpdt::Schedule schedule;
  schedule.ranks = ranks;
  schedule.groups = {{"world", ranks, 1, {}}};
  fpdt::Buffer buffer;
  buffer.shape = {1};
  schedule.buffers = {buffer, buffer};
  schedule.blocks.push_back({"step", {}, {}});
  schedule.blocks[0].ops.push_back(
      {"move", {fpdt::LaneKind::comm, 0}, Collective{"world", {{0, {}}}, {{{1, {}}, false}}}, {}});
  return schedule;
}

double lower_quartile(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 4];
}

template <class Collective>
void measure(fpdt::Communicator& communicator, fpdt::World& world, std::int64_t bytes) {
  const std::int64_t ranks = communicator.ranks();
  const bool gathers = std::is_same_v<Collective, fpdt::AllGather>;
  const fpdt::Schedule schedule = schedule_of<Collective>(ranks);
  const fpdt::Program program(schedule);
  communicator.prepare(program);
  Buffers buffers{ranks, communicator.rank(), gathers ? bytes : bytes / ranks, gathers, {}, {}};
  buffers.send.assign(index(bytes), std::byte{1});
  buffers.receive.assign(index(buffers.block * ranks), std::byte{0});
  const std::vector<fpdt::View> views{
      {buffers.send.data(), bytes / 4, fpdt::Dtype::f32, fpdt::Access::read},
      {buffers.receive.data(), buffers.block * ranks / 4, fpdt::Dtype::f32, fpdt::Access::write}};
  fpdt::HostMover mover;
  std::vector<MPI_Request> requests;
  const std::vector<std::function<void()>> ways{
      [&] { communicator.collective(program.blocks[0].ops[0].op->body, 0, views, mover); },
      [&] { messages(buffers, requests); }, [&] { native(buffers, requests); }};
  std::vector<std::vector<double>> times(ways.size());
  const std::int64_t rounds = std::clamp<std::int64_t>((256 << 20) / bytes, 24, 200);
  for (std::int64_t round = 0; round < rounds + 2; ++round) {
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t way = (turn + index(round)) % ways.size();
      communicator.barrier();
      const auto begin = std::chrono::steady_clock::now();
      ways[way]();
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      if (round >= 2) times[way].push_back(took.count());
    }
  }
  std::vector<double> slowest;
  for (const std::vector<double>& way : times) {
    double most = 0;
    for (const std::string& text : world.gather(fmt::format("{}", lower_quartile(way)))) {
      most = std::max(most, std::stod(text));
    }
    slowest.push_back(most);
  }
  if (!world.speaks()) return;
  fmt::print("{:<10} {:>6} KiB {:>9.3f} {:>9.3f} {:>9.3f}   {:.2f} {:.2f}\n",
             gathers ? "all_gather" : "all_to_all", bytes >> 10, slowest[0], slowest[1], slowest[2],
             slowest[0] / slowest[1], slowest[0] / slowest[2]);
  std::fflush(stdout);
}

}  // namespace

int main() {
  const fpdt::MpiJob job = fpdt::open_mpi({});
  if (job.world->speaks()) {
    fmt::print("{:<17} sent      ours  messages    native   ours/messages ours/native\n", "");
  }
  job.connect([&](fpdt::Communicator& communicator) {
    for (std::int64_t bytes = 64 << 10; bytes <= 64 << 20; bytes *= 4) {
      measure<fpdt::AllToAll>(communicator, *job.world, bytes);
      measure<fpdt::AllGather>(communicator, *job.world, bytes);
    }
  });
  return job.world->leave(0);
}
