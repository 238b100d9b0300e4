// Communicators of a program, and its collectives as calls of NCCL.
#include "fpdt/nccl/communicator.h"

#include <algorithm>
#include <array>
#include <variant>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/cuda/collective.h"
#include "fpdt/cuda/status.h"
#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

// Barriers alone need it.
Bytes message_buffer(std::int64_t ranks) { return Bytes{16 * (ranks + 1)}; }

std::string ranks_text(const Membership& members) {
  std::string text;
  for (std::int64_t i = 0; i < members.size; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", members.rank_of(i));
  }
  return text;
}

std::string lane_text(const Lane& lane) {
  return fmt::format("{}.{}", word(lane.kind), lane.index);
}

// Precondition: the op sums. Its operands are pairs, and a workspace if it has one.
void require_workspace(const PlainOp& op, std::int64_t members) {
  const Op& written = *op.op;
  if (op.uses.size() % 2 == 0) {
    throw InputError(fmt::format(
        "{}: NCCL moves the blocks of a {} into a workspace before they are added in order, but "
        "the op has none: lower the schedule again with this version of fpdt-plan",
        written.name, body_name(written.body)));
  }
  if (members > cuda::kMembersMost) {
    throw InputError(
        fmt::format("{}: a {} of {} ranks: the kernel adds those of at most {}; plan "
                    "groups of that size",
                    written.name, body_name(written.body), members, cuda::kMembersMost));
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(nccl::Comms& comms, nccl::Comm& everybody,
                                   std::vector<std::int64_t> nodes)
    : comms_(comms),
      everybody_(everybody),
      nodes_(std::move(nodes)),
      post_(comms, everybody, ranks(), message_buffer(ranks())),
      sums_(comms) {}

NcclCommunicator::~NcclCommunicator() { close(); }

std::int64_t NcclCommunicator::local_ranks() const {
  return std::count(nodes_.begin(), nodes_.end(), node_of(rank()));
}

std::int64_t NcclCommunicator::node_of(std::int64_t rank) const {
  return nodes_[static_cast<std::size_t>(rank)];
}

void NcclCommunicator::close() {
  watch_.reset();
  for (auto& [place, own] : owns_) comms_.close(*own.comm);
  for (auto& [number, lane] : lanes_) comms_.close(*lane.comm);
  owns_.clear();
  lanes_.clear();
  seats_.clear();
}

// All ranks form communicators in the same order: that of the ops, which they share.
void NcclCommunicator::prepare(const Program& program) {
  close();
  watch_.emplace(comms_, program.lanes.size());
  for (const PlainBlock& block : program.blocks) {
    for (const PlainOp& op : block.ops) {
      if (is_collective(op.op->body)) seat(program, op);
    }
  }
}

void NcclCommunicator::seat(const Program& program, const PlainOp& op) {
  const Schedule& schedule = *program.schedule;
  const Body& body = op.op->body;
  const Group& group = group_of(schedule, body);
  const Membership members = membership(group, rank());
  const std::string lane = lane_text(program.lanes[static_cast<std::size_t>(op.lane)]);
  Seat& seat = seats_[&body];
  seat.members = members;
  seat.what = fmt::format("{} ({}) of ranks {} on lane {}", op.op->name, body_name(body),
                          ranks_text(members), lane);
  if (members.size == 1) return;
  const std::int64_t hop = hop_of(body);
  for (std::int64_t member = 0; member < members.size; ++member) {
    const bool sends =
        hop == 0 ? member != members.mine : member == (members.mine + hop) % members.size;
    if (!sends) continue;
    ++(node_of(members.rank_of(member)) == node_of(rank()) ? seat.near : seat.far);
  }
  Lane& messages = lane_of(op.lane, lane);
  seat.lane = messages.comm;
  const bool scatters = std::holds_alternative<ReduceScatter>(body);
  const bool sums = scatters || std::holds_alternative<AllReduce>(body);
  const std::size_t pairs = op.uses.size() / 2;
  if (sums) {
    require_workspace(op, members.size);
    sums_.reserve(pairs, static_cast<std::size_t>(members.size));
  }
  if (sums ? comms_.options().native_sums
           : std::holds_alternative<AllGather>(body) && !is_near(group)) {
    Own& own = own_of(op.lane, group, members, lane);
    seat.own = own.comm;
    for (std::size_t i = 0; i < pairs; ++i) {
      // The block that one member sends in a gather, or receives in a sum.
      const PlainUse& block = op.uses[sums ? pairs + i : i];
      const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(block.buffer)];
      const std::int64_t bytes = block.rows * buffer.row_elements() * dtype_bytes(buffer.dtype);
      if (!sums) {
        own.gathers.insert(bytes);
      } else {
        (scatters ? own.scatters : own.reductions).emplace(buffer.dtype, bytes);
      }
    }
    if (!sums) return;
  }
  // A sum that does not fit is one of messages, also where NCCL adds the others.
  for (std::int64_t member = 0; member < members.size; ++member) {
    if (member != members.mine) messages.peers.insert(members.rank_of(member));
  }
}

NcclCommunicator::Lane& NcclCommunicator::lane_of(std::int32_t number, const std::string& name) {
  const auto found = lanes_.find(number);
  if (found != lanes_.end()) return found->second;
  nccl::Comm& comm = comms_.split(everybody_, 0, rank(), fmt::format("lane {}", name));
  watch_->prepare(static_cast<std::size_t>(number));
  return lanes_.emplace(number, Lane{&comm}).first->second;
}

NcclCommunicator::Own& NcclCommunicator::own_of(std::int32_t lane, const Group& group,
                                                const Membership& members,
                                                const std::string& name) {
  std::vector<std::int64_t> ranks_of_groups{group.size, group.stride};
  for (std::int64_t of = 0; of < ranks(); ++of) ranks_of_groups.push_back(group.first.at(of));
  std::pair place(lane, std::move(ranks_of_groups));
  const auto found = owns_.find(place);
  if (found != owns_.end()) return found->second;
  nccl::Comm& comm = comms_.split(everybody_, members.first, members.mine,
                                  fmt::format("group {} of lane {}", group.name, name));
  return owns_.emplace(std::move(place), Own{&comm}).first->second;
}

// Whether every group of this kind lies within a node: for all ranks the same answer.
bool NcclCommunicator::is_near(const Group& group) const {
  for (std::int64_t of = 0; of < ranks(); ++of) {
    if (node_of(of) != node_of(group.first.at(of))) return false;
  }
  return true;
}

void NcclCommunicator::warm_up(std::span<std::byte> arena) {
  comms_.count([&] {
    barrier();  // opens what barriers use
    for (const auto& [number, lane] : lanes_) open(lane, arena);
    for (const auto& [place, own] : owns_) open(own, arena);
    post_.wait(comms_.options().forming, "the first messages");
  });
  if (comms_.options().warmed_up) comms_.options().warmed_up(device_bytes());
}

// The operands of a collective lie in the arena together, so it has room for both ends.
void NcclCommunicator::open(const Lane& lane, std::span<std::byte> arena) {
  const nccl::Api& api = comms_.api();
  const ncclComm_t handle = lane.comm->handle;
  const cudaStream_t stream = post_.stream();
  if (lane.peers.empty()) return;
  comms_.group(*lane.comm, comms_.options().forming, [&](nccl::Results& results) {
    std::byte* received = arena.data() + arena.size();
    for (const std::int64_t rank : lane.peers) {
      const int peer = static_cast<int>(rank);
      results(api.ncclSend(arena.data(), 1, ncclUint8, peer, handle, stream));
      results(api.ncclRecv(--received, 1, ncclUint8, peer, handle, stream));
    }
  });
}

void NcclCommunicator::open(const Own& own, std::span<std::byte> arena) {
  const nccl::Api& api = comms_.api();
  const ncclComm_t handle = own.comm->handle;
  const std::chrono::milliseconds limit = comms_.options().forming;
  const cudaStream_t stream = post_.stream();
  const auto last = [&](std::int64_t bytes) { return arena.data() + arena.size() - bytes; };
  for (const std::int64_t bytes : own.gathers) {
    comms_.group(*own.comm, limit, [&](nccl::Results& results) {
      results(api.ncclAllGather(last(bytes), arena.data(), static_cast<std::size_t>(bytes),
                                ncclUint8, handle, stream));
    });
  }
  const auto elements = [](Dtype dtype, std::int64_t bytes) {
    return static_cast<std::size_t>(bytes / dtype_bytes(dtype));
  };
  for (const auto& [dtype, bytes] : own.scatters) {
    comms_.group(*own.comm, limit, [&](nccl::Results& results) {
      results(api.ncclReduceScatter(arena.data(), last(bytes), elements(dtype, bytes),
                                    nccl::type_of(dtype), ncclSum, handle, stream));
    });
  }
  for (const auto& [dtype, bytes] : own.reductions) {
    comms_.group(*own.comm, limit, [&](nccl::Results& results) {
      results(api.ncclAllReduce(arena.data(), last(bytes), elements(dtype, bytes),
                                nccl::type_of(dtype), ncclSum, handle, stream));
    });
  }
}

void NcclCommunicator::collective(const Body& body, std::int32_t lane, std::span<const View> views,
                                  Mover& mover) {
  const Seat& seat = seats_.at(&body);
  if (seat.lane == nullptr) {
    const std::array<std::span<const View>, 1> alone{views};
    return mover.receive(body, 0, alone);
  }
  auto* const stream = static_cast<cudaStream_t>(mover.stream());
  FPDT_ASSERT(stream != nullptr);
  watch_->begin(static_cast<std::size_t>(lane), stream, seat.what);
  const bool scatters = std::holds_alternative<ReduceScatter>(body);
  if (scatters || std::holds_alternative<AllReduce>(body)) {
    sums_.run(scatters, *seat.lane, seat.own, seat.members, views, stream, mover);
  } else {
    move(body, seat, views, stream);
  }
  watch_->end(static_cast<std::size_t>(lane), stream);
  const std::int64_t bytes = bytes_to_each(body, seat.members.size, views);
  count(true, seat.near * bytes);
  count(false, seat.far * bytes);
}

void NcclCommunicator::move(const Body& body, const Seat& seat, std::span<const View> views,
                            cudaStream_t stream) {
  const nccl::Api& api = comms_.api();
  const std::size_t pairs = views.size() / 2;
  const nccl::Comm& comm = seat.own != nullptr ? *seat.own : *seat.lane;
  const bool gathers = std::holds_alternative<AllGather>(body);
  const std::int64_t members = seat.members.size;
  comms_.group(comm, comms_.deadline(), [&](nccl::Results& results) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const View& send = views[i];
      const View& receive = views[pairs + i];
      FPDT_ASSERT(send.dtype == receive.dtype && receive.access == Access::write);
      if (seat.own != nullptr) {
        results(api.ncclAllGather(send.data, receive.data, static_cast<std::size_t>(send.bytes()),
                                  ncclUint8, comm.handle, stream));
        continue;
      }
      if (const std::int64_t hop = hop_of(body); hop > 0) {
        const auto bytes = static_cast<std::size_t>(send.bytes());
        const std::int64_t mine = seat.members.mine;
        const auto to = static_cast<int>(seat.members.rank_of((mine + hop) % members));
        const auto from = static_cast<int>(seat.members.rank_of(source_of(hop, mine, members)));
        results(api.ncclSend(send.data, bytes, ncclUint8, to, comm.handle, stream));
        results(api.ncclRecv(receive.data, bytes, ncclUint8, from, comm.handle, stream));
        continue;
      }
      const std::int64_t block = div_exact(receive.bytes(), members);
      const auto bytes = static_cast<std::size_t>(block);
      for (std::int64_t member = 0; member < members; ++member) {
        const int peer = static_cast<int>(seat.members.rank_of(member));
        const std::int64_t sent = gathers ? 0 : member * block;
        results(api.ncclSend(send.data + sent, bytes, ncclUint8, peer, comm.handle, stream));
        results(api.ncclRecv(receive.data + member * block, bytes, ncclUint8, peer, comm.handle,
                             stream));
      }
    }
  });
}

void NcclCommunicator::settle() {
  if (const std::optional<Error> found = comms_.look()) comms_.fail(*found);
  comms_.check();
}

void NcclCommunicator::barrier() { post_.gather(""); }

void NcclCommunicator::abort(std::exception_ptr cause) noexcept {
  const Error error = error_of(cause);
  static_cast<void>(
      comms_.abort(Error(error.code(), fmt::format("rank {} stopped: {}", rank(), error.what()))));
}

Bytes NcclCommunicator::device_bytes() const {
  return comms_.device_bytes() + message_buffer(ranks());
}

}  // namespace fpdt
