// Collectives as transfers between members, and sums of what arrived.
#include "fpdt/mpi/communicator.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

std::span<std::byte> part(const View& view, std::int64_t first, std::int64_t count) {
  FPDT_ASSERT(first >= 0 && count >= 0 && first + count <= view.elements);
  return {view.data + first * dtype_bytes(view.dtype), index(count * dtype_bytes(view.dtype))};
}

View view_of(std::span<std::byte> bytes, const View& like) {
  return {bytes.data(), div_exact(std::ssize(bytes), dtype_bytes(like.dtype)), like.dtype,
          like.access};
}

// Throws InputError when a sum over several ranks has no memory to move their blocks into.
void require_workspace(const Body& body, const std::string& name) {
  std::visit(
      [&name](const auto& op) {
        if constexpr (requires { op.workspace, op.group; }) {
          if (op.workspace.present()) return;
          throw InputError(fmt::format(
              "{}: this {} has no workspace, which ranks in processes need; write the schedule "
              "again with fpdt-plan lower",
              name, std::decay_t<decltype(op)>::kTraits.name));
        }
      },
      body);
}

// Calls see(member) for all other members, from the next one on: no member is everybody's first.
template <class See>
void each_other(const Membership& members, See see) {
  for (std::int64_t i = 1; i < members.size; ++i) see((members.mine + i) % members.size);
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiProcess& process)
    : process_(process), everybody_(process.channel(1, 2)) {}

void MpiCommunicator::prepare(const Program& program) {
  const Schedule& schedule = *program.schedule;
  places_.clear();
  std::vector<std::size_t> transfers(program.lanes.size());
  std::vector<std::size_t> members(program.lanes.size());
  for (std::size_t b = 0; b < program.blocks.size(); ++b) {
    for (const PlainOp& op : program.blocks[b].ops) {
      const Body& body = op.op->body;
      if (!is_collective(body)) continue;
      Place place{fmt::format("{}.{}", schedule.blocks[b].name, op.op->name),
                  membership(group_of(schedule, body), rank())};
      if (place.members.size > 1) require_workspace(body, place.name);
      const auto lane = static_cast<std::size_t>(op.lane);
      const std::size_t size = index(place.members.size);
      transfers[lane] = std::max(transfers[lane], size * op.uses.size());
      members[lane] = std::max(members[lane], size);
      places_.insert_or_assign(&body, std::move(place));
    }
  }
  tools_.resize(program.lanes.size());
  for (std::size_t lane = 0; lane < tools_.size(); ++lane) {
    Tools& tools = tools_[lane];
    tools.channel = &process_.channel(2 + static_cast<std::int32_t>(lane), transfers[lane]);
    tools.transfers.reserve(transfers[lane]);
    tools.blocks.resize(members[lane]);
  }
}

void MpiCommunicator::collective(const Body& body, std::int32_t lane, std::span<const View> views,
                                 Mover&) {
  const auto found = places_.find(&body);
  FPDT_ASSERT(found != places_.end());
  const Membership& members = found->second.members;
  Tools& tools = tools_[static_cast<std::size_t>(lane)];
  const MpiProcess::Meeting meeting(process_, *tools.channel, found->second.name);
  std::visit(
      [&](const auto& op) {
        using Collective = std::decay_t<decltype(op)>;
        if constexpr (IsCollective<Collective>) {
          const std::size_t pairs = op.receive.size();
          const std::span<const View> sends = views.first(pairs);
          const std::span<const View> receives = views.subspan(pairs, pairs);
          if constexpr (std::is_same_v<Collective, AllToAll> ||
                        std::is_same_v<Collective, AllGather>) {
            move(members, std::is_same_v<Collective, AllToAll>, sends, receives, tools);
          } else if constexpr (std::is_same_v<Collective, Exchange>) {
            pass_on(members, op.hop, sends, receives, tools);
          } else {
            for (std::size_t i = 0; i < pairs; ++i) {
              sum(members, std::is_same_v<Collective, ReduceScatter>, sends[i], receives[i],
                  views.back(), tools);
            }
          }
        }
      },
      body);
}

// Moves to each member its block of the sends, or all of them.
void MpiCommunicator::move(const Membership& members, bool scatters, std::span<const View> sends,
                           std::span<const View> receives, Tools& tools) {
  tools.transfers.clear();
  for (std::size_t i = 0; i < receives.size(); ++i) {
    const View& target = receives[i];
    FPDT_ASSERT(target.dtype == sends[i].dtype && target.access == Access::write);
    const std::int64_t block = div_exact(target.elements, members.size);
    const auto sent = [&](std::int64_t to) {
      return part(sends[i], scatters ? to * block : 0, block);
    };
    const auto place = [&](std::int64_t from) { return part(target, from * block, block); };
    const auto transfer = [&](std::int64_t member) {
      tools.transfers.push_back({members.rank_of(member), sent(member), place(member)});
    };
    transfer(members.mine);
    each_other(members, transfer);
  }
  exchange(tools);
}

// Moves the sends to one member, and those of another here. In the middle of a ring of two they are
// the same.
void MpiCommunicator::pass_on(const Membership& members, std::int64_t hop,
                              std::span<const View> sends, std::span<const View> receives,
                              Tools& tools) {
  const std::int64_t to = (members.mine + hop) % members.size;
  const std::int64_t from = source_of(hop, members.mine, members.size);
  tools.transfers.clear();
  for (std::size_t i = 0; i < receives.size(); ++i) {
    FPDT_ASSERT(receives[i].dtype == sends[i].dtype && receives[i].access == Access::write);
    tools.transfers.push_back({members.rank_of(to), part(sends[i], 0, sends[i].elements), {}});
    tools.transfers.push_back(
        {members.rank_of(from), {}, part(receives[i], 0, receives[i].elements)});
  }
  exchange(tools);
}

// target (+)= the sum of a block of every member, in member order.
void MpiCommunicator::sum(const Membership& members, bool scatters, const View& send,
                          const View& target, const View& workspace, Tools& tools) {
  const std::int64_t bytes = dtype_bytes(send.dtype);
  const std::span<View> blocks = std::span(tools.blocks).first(index(members.size));
  // The workspace holds a piece of every other member.
  const std::int64_t others = std::max<std::int64_t>(1, members.size - 1);
  const std::span<std::byte> room = part(workspace, 0, workspace.elements);
  const std::int64_t most = std::ssize(room) / bytes / others;
  FPDT_ASSERT(most > 0);
  for (std::int64_t at = 0; at < target.elements; at += most) {
    const std::int64_t count = std::min(most, target.elements - at);
    const auto sent = [&](std::int64_t to) {
      return part(send, (scatters ? to * target.elements : 0) + at, count);
    };
    blocks[index(members.mine)] = view_of(sent(members.mine), send);
    tools.transfers.clear();
    each_other(members, [&](std::int64_t peer) {
      const auto place =
          room.subspan(tools.transfers.size() * index(most * bytes), index(count * bytes));
      tools.transfers.push_back({members.rank_of(peer), sent(peer), place});
      blocks[index(peer)] = view_of(place, send);
    });
    exchange(tools);
    add_in_order(view_of(part(target, at, count), target), blocks);
  }
}

void MpiCommunicator::exchange(Tools& tools) {
  process_.exchange(*tools.channel, tools.transfers);
  for (const Transfer& transfer : tools.transfers) {
    if (transfer.peer == rank()) continue;
    count(process_.is_near(transfer.peer), std::ssize(transfer.send));
  }
}

void MpiCommunicator::barrier() {
  const MpiProcess::Meeting meeting(process_, everybody_, "a barrier");
  process_.barrier(everybody_);
}

void MpiCommunicator::abort(std::exception_ptr cause) noexcept {
  const Error error = error_of(cause);
  process_.fail({error.code(), rank(), error.what()});
}

Connect connect_mpi(MpiWorld& world) {
  return [&world](const RankMain& rank_main) {
    MpiCommunicator communicator(world.process());
    try {
      rank_main(communicator);
    } catch (...) {
      communicator.abort(std::current_exception());
      throw;
    }
  };
}

}  // namespace fpdt
