// The functions of NCCL, which keep the state of communicators and note broken rules.
#include "fake_nccl.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "fake_network.h"
#include "fake_runtime.h"

namespace fpdt::fake {
namespace {

thread_local int depth = 0;
thread_local std::vector<Call> group;

// Whether the communicator may be used for a call.
bool usable(const ncclComm* comm, const char* call) {
  if (comm == nullptr) {
    broke(fmt::format("{} without a communicator", call));
  } else if (comm->ended) {
    broke(fmt::format("{} after {}", call, comm->aborted ? "an abort" : "its destruction"));
  } else if (comm->pending) {
    broke(fmt::format("{} while a call is in progress", call));
  } else if (comm->finalized) {
    broke(fmt::format("{} after ncclCommFinalize", call));
  } else {
    return true;
  }
  return false;
}

ncclComm* make_comm(const std::shared_ptr<Clique>& clique, int rank, int world_rank, int channels) {
  auto& made = state().comms.emplace_back(std::make_unique<ncclComm>());
  made->clique = clique;
  made->rank = rank;
  made->world_rank = world_rank;
  made->channels = channels;
  state().channels.insert(channels);
  clique->members.at(static_cast<std::size_t>(rank)) = made.get();
  return made.get();
}

bool configured(const ncclConfig_t* config, const char* call) {
  const ncclConfig_t wanted = NCCL_CONFIG_INITIALIZER;
  if (config != nullptr && config->magic == wanted.magic && config->size == wanted.size &&
      config->blocking == 0 && config->splitShare == 0 && config->maxCTAs > 0) {
    return true;
  }
  broke(fmt::format("{} without its configuration", call));
  return false;
}

template <class Done>
void wait_until(Done&& done) {
  for (;;) {
    {
      const auto lock = hold();
      if (done()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

ncclResult_t get_version(int* version) {
  *version = state().network.version;
  return ncclSuccess;
}

const char* get_error_string(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the tests";
}

const char* get_last_error(ncclComm_t) { return ""; }

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const auto lock = hold();
  if (state().network.address_taken) return ncclSystemError;
  *id = {};
  const char* const given = std::getenv("NCCL_COMM_ID");
  const std::string name = given != nullptr ? given : fmt::format("id {}", ++state().next_id);
  name.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}

ncclResult_t comm_init(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  const auto lock = hold();
  if (!configured(config, "ncclCommInitRankConfig")) return ncclInvalidArgument;
  std::shared_ptr<Clique>& clique = state().ids[id.internal];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->members.resize(static_cast<std::size_t>(ranks));
  *comm = make_comm(clique, rank, rank, config->maxCTAs);
  (*comm)->pending = Pending{state().network.questions, [clique] { return clique->complete(); }};
  return ncclInProgress;
}

// The members of the new communicator are known when all of the old one have asked.
void finish_split(const ncclComm* parent, std::int64_t number, ncclComm_t* result, int channels) {
  Clique::Split& split = parent->clique->splits[number];
  const auto [color, key] = split.asked.at(parent->rank);
  std::vector<std::pair<int, int>> order;  // key, rank
  for (const auto& [rank, asked] : split.asked) {
    if (asked.first == color) order.emplace_back(asked.second, rank);
  }
  std::sort(order.begin(), order.end());
  std::shared_ptr<Clique>& clique = split.cliques[color];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->members.resize(order.size());
  const auto place = std::find(order.begin(), order.end(), std::pair(key, parent->rank));
  ncclComm* const made =
      make_comm(clique, static_cast<int>(place - order.begin()), parent->world_rank, channels);
  std::atomic_ref(*result).store(made);
}

ncclResult_t comm_split(ncclComm_t parent, int color, int key, ncclComm_t* result,
                        ncclConfig_t* config) {
  const auto lock = hold();
  if (!usable(parent, "ncclCommSplit")) return ncclInvalidArgument;
  if (!configured(config, "ncclCommSplit")) return ncclInvalidArgument;
  const std::int64_t number = ++parent->splits;
  const std::shared_ptr<Clique> clique = parent->clique;
  clique->splits[number].asked[parent->rank] = {color, key};
  parent->pending = Pending{
      state().network.questions,
      [clique, number] { return clique->splits[number].asked.size() == clique->members.size(); },
      [=, channels = config->maxCTAs] { finish_split(parent, number, result, channels); }};
  return ncclInProgress;
}

ncclResult_t comm_finalize(ncclComm_t comm) {
  const auto lock = hold();
  if (!usable(comm, "ncclCommFinalize")) return ncclInvalidArgument;
  comm->finalized = true;
  comm->pending = Pending{state().network.questions, [comm] { return comm->queued == 0; }};
  return ncclInProgress;
}

ncclResult_t comm_destroy(ncclComm_t comm) {
  const auto lock = hold();
  if (comm == nullptr || comm->ended || comm->pending || !comm->finalized) {
    broke("ncclCommDestroy of a communicator that is not finalized");
    return ncclInvalidArgument;
  }
  free_memory(comm);
  comm->ended = true;
  return ncclSuccess;
}

ncclResult_t comm_abort(ncclComm_t comm) {
  {
    const auto lock = hold();
    if (comm == nullptr || comm->ended) {
      broke("ncclCommAbort of a communicator that has ended");
      return ncclInvalidArgument;
    }
    comm->ended = comm->aborted = true;
    comm->pending.reset();
    forget(comm);
    for (ncclComm* const other : comm->clique->members) {
      if (state().network.far && other != nullptr && other != comm) other->error = ncclRemoteError;
    }
  }
  wait_until([comm] {
    return state().released || !state().network.hanging_aborts.contains(comm->world_rank);
  });
  // Its work leaves the streams behind whatever is queued before it.
  if (run_until([comm] { return comm->queued == 0; }) != cudaSuccess) return ncclInternalError;
  const auto lock = hold();
  free_memory(comm);
  return ncclSuccess;
}

ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* result) {
  const auto lock = hold();
  if (comm == nullptr || comm->ended) {
    broke("ncclCommGetAsyncError of a communicator that has ended");
    return ncclInvalidArgument;
  }
  *result = comm->error;
  if (comm->error != ncclSuccess || !comm->pending) return ncclSuccess;
  *result = ncclInProgress;
  if (--comm->pending->questions >= 0) return ncclSuccess;
  if (comm->pending->ready && !comm->pending->ready()) return ncclSuccess;
  const Pending done = std::move(*comm->pending);
  comm->pending.reset();
  if (done.finish) done.finish();
  *result = comm->error;
  return ncclSuccess;
}

ncclResult_t group_start() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (depth == 0) {
    const auto lock = hold();
    broke("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--depth > 0 || group.empty()) return ncclSuccess;
  const std::vector<Call> calls = std::exchange(group, {});
  ncclComm* const comm = calls.front().comm;
  {
    const auto lock = hold();
    if (!usable(comm, "ncclGroupEnd")) return ncclInvalidArgument;
    const auto same = [comm](const Call& call) { return call.comm == comm; };
    if (!std::all_of(calls.begin(), calls.end(), same)) broke("a group of several communicators");
    const int rank = comm->world_rank;
    const Network& network = state().network;
    const bool fails = rank == network.failing_rank;
    if (++state().groups[rank] >= network.failing_group && fails) comm->error = network.failure;
    if (!state().hanging_calls.contains(rank)) {
      comm->pending = Pending{network.questions, nullptr, [comm, calls] { launch(comm, calls); }};
      return ncclInProgress;
    }
  }
  wait_until([comm] { return comm->aborted; });
  return ncclInternalError;
}

ncclResult_t add(const Call& call, const char* name) {
  const auto lock = hold();
  if (depth == 0) broke(fmt::format("{} outside of a group", name));
  if (!usable(call.comm, name)) return ncclInvalidArgument;
  if (call.peer < 0 || call.peer >= call.comm->size()) {
    broke(fmt::format("{}: no rank {}", name, call.peer));
    return ncclInvalidArgument;
  }
  group.push_back(call);
  return ncclSuccess;
}

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }
std::size_t bytes_of(std::size_t count, ncclDataType_t type) {
  return count * (type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1);
}

ncclResult_t send(const void* data, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return add(
      {Call::Kind::send, comm, bytes_of(data), nullptr, bytes_of(count, type), type, peer, stream},
      "ncclSend");
}

ncclResult_t receive(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return add({Call::Kind::receive, comm, nullptr, bytes_of(data), bytes_of(count, type), type, peer,
              stream},
             "ncclRecv");
}

ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  return add({Call::Kind::gather, comm, bytes_of(from), bytes_of(to), bytes_of(count, type), type,
              0, stream},
             "ncclAllGather");
}

ncclResult_t reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add({Call::Kind::scatter, comm, bytes_of(from), bytes_of(to), bytes_of(count, type), type,
              0, stream},
             "ncclReduceScatter");
}

ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add({Call::Kind::reduce, comm, bytes_of(from), bytes_of(to), bytes_of(count, type), type,
              0, stream},
             "ncclAllReduce");
}

}  // namespace

void set(const Network& network) {
  const auto lock = hold();
  state() = State{};
  state().network = network;
}

const nccl::Api& nccl_api() {
  static const nccl::Api api{.library = {},
                             .ncclGetVersion = get_version,
                             .ncclGetErrorString = get_error_string,
                             .ncclGetLastError = get_last_error,
                             .ncclGetUniqueId = get_unique_id,
                             .ncclCommInitRankConfig = comm_init,
                             .ncclCommSplit = comm_split,
                             .ncclCommFinalize = comm_finalize,
                             .ncclCommDestroy = comm_destroy,
                             .ncclCommAbort = comm_abort,
                             .ncclCommGetAsyncError = comm_get_async_error,
                             .ncclGroupStart = group_start,
                             .ncclGroupEnd = group_end,
                             .ncclSend = send,
                             .ncclRecv = receive,
                             .ncclAllGather = all_gather,
                             .ncclReduceScatter = reduce_scatter,
                             .ncclAllReduce = all_reduce};
  return api;
}

void release() {
  const auto lock = hold();
  state().released = true;
}

void let_calls_hang(int rank) {
  const auto lock = hold();
  state().hanging_calls.insert(rank);
}

std::vector<std::string> broken_rules() {
  const auto lock = hold();
  return state().broken;
}

std::int64_t open_communicators() {
  const auto lock = hold();
  return std::count_if(state().comms.begin(), state().comms.end(),
                       [](const auto& comm) { return !comm->ended; });
}

std::int64_t aborts() {
  const auto lock = hold();
  return std::count_if(state().comms.begin(), state().comms.end(),
                       [](const auto& comm) { return comm->aborted; });
}

std::int64_t groups(int rank) {
  const auto lock = hold();
  return state().groups[rank];
}

std::int64_t sent(int from, int to) {
  const auto lock = hold();
  return state().sent[{from, to}];
}

std::set<int> channels() {
  const auto lock = hold();
  return state().channels;
}

}  // namespace fpdt::fake
