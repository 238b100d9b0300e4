// What the fake NCCL consists of: communicators, and messages between them on streams.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nccl.h>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_nccl.h"

namespace fpdt::fake {

struct Work;

// One half of a message.
struct Half {
  std::shared_ptr<Work> work;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// What the ranks of a communicator share.
struct Clique {
  struct Split {
    std::map<int, std::pair<int, int>> asked;        // by rank: color, key
    std::map<int, std::shared_ptr<Clique>> cliques;  // by color
  };
  std::vector<ncclComm*> members;                                   // by rank; null: not there yet
  std::map<std::pair<int, int>, std::deque<Half>> sends, receives;  // by sender and receiver
  std::map<std::int64_t, Split> splits;

  [[nodiscard]] bool complete() const {
    return std::find(members.begin(), members.end(), nullptr) == members.end();
  }
};

// A call that NCCL still works on.
struct Pending {
  std::int64_t questions = 0;
  std::function<bool()> ready = nullptr;
  std::function<void()> finish = nullptr;
};

}  // namespace fpdt::fake

struct ncclComm {
  std::shared_ptr<fpdt::fake::Clique> clique;
  int rank = 0, world_rank = 0;
  int channels = 1;
  std::optional<fpdt::fake::Pending> pending = {};
  ncclResult_t error = ncclSuccess;
  std::int64_t splits = 0;
  std::int64_t queued = 0;  // groups on the streams
  std::set<std::pair<std::string, int>> opened = {};
  std::vector<void*> memory = {};
  bool finalized = false, ended = false, aborted = false;

  [[nodiscard]] int size() const { return static_cast<int>(clique->members.size()); }
};

namespace fpdt::fake {

// A call within a group.
struct Call {
  enum class Kind { send, receive, gather, scatter, reduce } kind = Kind::send;
  ncclComm* comm = nullptr;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;  // of a block
  ncclDataType_t type = ncclUint8;
  int peer = 0;
  cudaStream_t stream = nullptr;
};

// A group of calls of one communicator, on its stream.
struct Work {
  ncclComm* comm = nullptr;
  std::vector<Call> calls;
  std::vector<std::vector<std::byte>> rooms = {};  // for blocks that are added
  std::int64_t left = 0;                           // halves of messages that wait for the other
};

struct State {
  Network network;
  bool released = false;
  std::set<int> hanging_calls;
  std::vector<std::string> broken;
  std::vector<std::unique_ptr<ncclComm>> comms;  // all that ever were
  std::map<std::string, std::shared_ptr<Clique>> ids;
  std::map<int, std::int64_t> groups;
  std::map<std::pair<int, int>, std::int64_t> sent;
  std::set<int> channels;
  std::int64_t next_id = 0;
};

State& state();
void broke(std::string rule);

// NCCL has launched a group: from now on it is on the stream.
void launch(ncclComm* comm, const std::vector<Call>& calls);
// Forgets the messages of a rank that has gone.
void forget(const ncclComm* comm);
void free_memory(ncclComm* comm);

}  // namespace fpdt::fake
