// Mailboxes: a message moves when both its halves have had their turn on their streams.
#include "fake_network.h"

#include <cstring>
#include <span>

#include <fmt/format.h>

#include "fpdt/runtime/bf16.h"

#include "fake_runtime.h"

namespace fpdt::fake {
namespace {

// Takes memory when a communicator first uses a peer or an algorithm.
void open(ncclComm* comm, const std::string& what, int peer) {
  if (!comm->opened.emplace(what, peer).second) return;
  void* memory = nullptr;
  const std::int64_t bytes = comm->channels * state().network.peer_bytes.value;
  if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    comm->error = ncclUnhandledCudaError;
    return;
  }
  comm->memory.push_back(memory);
}

// Moves what has both its halves.
void match(const Clique& clique, std::deque<Half>& sends, std::deque<Half>& receives, int from,
           int to) {
  while (!sends.empty() && !receives.empty()) {
    const Half send = sends.front();
    const Half receive = receives.front();
    sends.pop_front();
    receives.pop_front();
    if (send.bytes != receive.bytes) {
      broke(fmt::format("{} bytes sent, {} received", send.bytes, receive.bytes));
    }
    std::memcpy(receive.data, send.data, std::min(send.bytes, receive.bytes));
    const auto world = [&](int rank) {
      return clique.members[static_cast<std::size_t>(rank)]->world_rank;
    };
    state().sent[{world(from), world(to)}] += static_cast<std::int64_t>(send.bytes);
    --send.work->left;
    --receive.work->left;
  }
}

void post(const std::shared_ptr<Work>& work, Call::Kind kind, std::byte* data, std::size_t bytes,
          int peer) {
  Clique& clique = *work->comm->clique;
  const bool sends = kind == Call::Kind::send;
  const std::pair ends(sends ? work->comm->rank : peer, sends ? peer : work->comm->rank);
  ++work->left;
  (sends ? clique.sends : clique.receives)[ends].push_back({work, data, bytes});
  match(clique, clique.sends[ends], clique.receives[ends], ends.first, ends.second);
}

// A work's turn on its stream has come.
void arrive(const std::shared_ptr<Work>& work) {
  using Kind = Call::Kind;
  if (work->comm->aborted) return;
  for (const Call& call : work->calls) {
    auto* const from = const_cast<std::byte*>(call.from);
    if (call.kind == Kind::send) post(work, Kind::send, from, call.bytes, call.peer);
    if (call.kind == Kind::receive) post(work, Kind::receive, call.to, call.bytes, call.peer);
    if (call.kind == Kind::send || call.kind == Kind::receive) continue;
    for (int peer = 0; peer < work->comm->size(); ++peer) {
      const auto at = static_cast<std::size_t>(peer) * call.bytes;
      std::byte* to = call.to + at;
      if (call.kind != Kind::gather) to = work->rooms.emplace_back(call.bytes).data();
      post(work, Kind::send, from + (call.kind == Kind::scatter ? at : 0), call.bytes, peer);
      post(work, Kind::receive, to, call.bytes, peer);
    }
  }
}

// Sums in an order in which nobody else adds, rounding each time.
void add_blocks(const Call& call, std::span<const std::vector<std::byte>> blocks) {
  const bool wide = call.type == ncclFloat32;
  for (std::size_t i = 0; i < call.bytes / (wide ? 4 : 2); ++i) {
    float sum = 0;
    for (std::size_t block = blocks.size(); block-- > 0;) {
      const std::byte* const data = blocks[block].data();
      const float value = wide ? reinterpret_cast<const float*>(data)[i]
                               : widen(reinterpret_cast<const std::uint16_t*>(data)[i]);
      sum = wide ? sum + value : widen(narrow(sum + value));
    }
    if (wide) {
      reinterpret_cast<float*>(call.to)[i] = sum;
    } else {
      reinterpret_cast<std::uint16_t*>(call.to)[i] = narrow(sum);
    }
  }
}

void finish(const std::shared_ptr<Work>& work) {
  --work->comm->queued;
  if (work->comm->aborted) return;
  std::span<const std::vector<std::byte>> rooms = work->rooms;
  const auto size = static_cast<std::size_t>(work->comm->size());
  for (const Call& call : work->calls) {
    if (call.kind != Call::Kind::scatter && call.kind != Call::Kind::reduce) continue;
    add_blocks(call, rooms.first(size));
    rooms = rooms.subspan(size);
  }
}

}  // namespace

State& state() {
  static State one;
  return one;
}

void broke(std::string rule) { state().broken.push_back(std::move(rule)); }

void launch(ncclComm* comm, const std::vector<Call>& calls) {
  const auto work = std::make_shared<Work>(Work{comm, calls});
  emulator::Given given;
  for (const Call& call : work->calls) {
    const bool pair = call.kind == Call::Kind::send || call.kind == Call::Kind::receive;
    if (pair && call.peer != comm->rank) open(comm, "peer", call.peer);
    // NCCL chooses another algorithm from some size on.
    if (!pair) open(comm, call.bytes < 64 ? "small" : "large", static_cast<int>(call.kind));
    given.push_back(call.from);
    given.push_back(call.to);
  }
  const cudaStream_t stream = calls.front().stream;
  ++comm->queued;
  enqueue(stream, given, [work] { arrive(work); });
  enqueue_when(
      stream, given, [work] { return work->left == 0 || work->comm->aborted; },
      [work] { finish(work); });
}

void forget(const ncclComm* comm) {
  for (auto* halves : {&comm->clique->sends, &comm->clique->receives}) {
    for (auto& [ends, waiting] : *halves) {
      std::erase_if(waiting, [&](const Half& half) { return half.work->comm == comm; });
    }
  }
}

void free_memory(ncclComm* comm) {
  for (void* const memory : comm->memory) static_cast<void>(cudaFree(memory));
  comm->memory.clear();
}

}  // namespace fpdt::fake
