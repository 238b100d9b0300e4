// Rounds of moves and additions.
#include "fpdt/nccl/sums.h"

#include <algorithm>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"
#include "fpdt/schedule/op.h"

namespace fpdt::nccl {
namespace {

constexpr std::int64_t kPack = 16;  // bytes that a thread of the kernel moves at once

// The sum of one pair of operands, of terms that this rank can read.
const Body kAdd = AllReduce{"", {Operand{}}, {Target{}}};

View part(const View& view, std::int64_t first, std::int64_t count) {
  FPDT_ASSERT(first >= 0 && count >= 0 && first + count <= view.elements);
  return {view.data + first * dtype_bytes(view.dtype), count, view.dtype, view.access};
}

}  // namespace

ncclDataType_t type_of(Dtype dtype) {
  FPDT_ASSERT(dtype != Dtype::i32);
  return dtype == Dtype::f32 ? ncclFloat32 : ncclBfloat16;
}

void Sums::reserve(std::size_t pairs, std::size_t members) {
  parts_.reserve(pairs);
  terms_.reserve(members);
  spans_.reserve(members);
}

void Sums::run(bool scatters, const Comm& lane, const Comm* own, const Membership& members,
               std::span<const View> views, cudaStream_t stream, Mover& mover) {
  const std::size_t pairs = views.size() / 2;
  FPDT_ASSERT(views.size() == 2 * pairs + 1);
  const Call call{scatters, lane, own, members, views.back(), stream, mover};
  for (std::size_t i = 0; i < pairs; ++i) {
    if (!run_natively(call, views[i], views[pairs + i])) cut(call, views[i], views[pairs + i]);
  }
  if (!parts_.empty()) flush(call);
}

void Sums::cut(const Call& call, const View& send, const View& target) {
  const std::int64_t size = dtype_bytes(send.dtype);
  for (std::int64_t first = 0; first < target.elements; first += parts_.back().count) {
    const auto share = [&] { return (call.workspace.bytes() - used_) / call.members.size; };
    if (!parts_.empty() && share() < kPack) flush(call);
    // Pieces begin at whole packs, unless the workspace is too small for that.
    const std::int64_t unit = share() < kPack ? size : kPack;
    const std::int64_t left = (target.elements - first) * size;
    const std::int64_t stride = std::min(share() / unit * unit, round_up(left, unit));
    const std::int64_t count = std::min(left, stride) / size;
    FPDT_ASSERT(count > 0);
    parts_.push_back({send, target, first, count, used_, stride});
    used_ += call.members.size * stride;
  }
}

void Sums::flush(const Call& call) {
  const Api& api = comms_.api();
  const Membership& members = call.members;
  // The elements of a part that one member owes another: the other's block, or all of it.
  const auto owed = [&](const Part& one, std::int64_t member) {
    const std::int64_t block = call.scatters ? member * one.target.elements : 0;
    return part(one.send, block + one.first, one.count);
  };
  const auto place = [&](const Part& one, std::int64_t member) {
    return call.workspace.data + one.offset + member * one.stride;
  };
  comms_.group(call.lane, comms_.deadline(), [&](Results& results) {
    for (const Part& one : parts_) {
      for (std::int64_t member = 0; member < members.size; ++member) {
        if (member == members.mine) continue;
        const View mine = owed(one, member);
        const auto bytes = static_cast<std::size_t>(mine.bytes());
        const int peer = static_cast<int>(members.rank_of(member));
        const ncclComm_t handle = call.lane.handle;
        results(api.ncclSend(mine.data, bytes, ncclUint8, peer, handle, call.stream));
        results(api.ncclRecv(place(one, member), bytes, ncclUint8, peer, handle, call.stream));
      }
    }
  });
  for (const Part& one : parts_) {
    terms_.clear();
    spans_.clear();
    const View target = part(one.target, one.first, one.count);
    for (std::int64_t member = 0; member < members.size; ++member) {
      View sent = owed(one, members.mine);
      if (member != members.mine) sent.data = place(one, member);
      terms_.push_back({sent, target});
    }
    for (const std::array<View, 2>& term : terms_) spans_.emplace_back(term);
    call.mover.receive(kAdd, members.mine, spans_);
  }
  parts_.clear();
  used_ = 0;
}

bool Sums::run_natively(const Call& call, const View& send, const View& target) {
  if (call.own == nullptr) return false;
  const bool adds = target.access == Access::accumulate;
  if (adds && target.bytes() > call.workspace.bytes()) return false;
  View sum = target;
  if (adds) sum.data = call.workspace.data;
  const auto count = static_cast<std::size_t>(target.elements);
  const ncclDataType_t type = type_of(send.dtype);
  const auto reduce = call.scatters ? comms_.api().ncclReduceScatter : comms_.api().ncclAllReduce;
  comms_.group(*call.own, comms_.deadline(), [&](Results& results) {
    results(reduce(send.data, sum.data, count, type, ncclSum, call.own->handle, call.stream));
  });
  if (!adds) return true;
  const std::array<View, 2> term{sum, target};
  const std::array<std::span<const View>, 1> all{term};
  call.mover.receive(kAdd, 0, all);
  return true;
}

}  // namespace fpdt::nccl
