// Follows cuts from the state table through collectives.
#include "fpdt/schedule/verify/origin_cuts.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// A multiple of an odd constant, which is another number for each part.
std::uint64_t number_of(std::uint64_t part) {
  const std::uint64_t n = (part + 1) * 0xd1342543de82ef95U;
  return n ^ (n >> 29U);
}

}  // namespace

std::vector<const TensorCut*> cuts_of_buffers(const Schedule& schedule) {
  std::vector<const TensorCut*> cuts(schedule.buffers.size(), nullptr);
  bool any = false;
  for (const State& state : schedule.states) {
    if (state.cut.ways == 1) continue;
    cuts[index(state.buffer)] = &state.cut;
    any = true;
  }
  const auto follow = [&](const auto& body) {
    if constexpr (IsCollective<std::decay_t<decltype(body)>>) {
      for (std::size_t i = 0; i < body.send.size(); ++i) {
        const TensorCut*& sent = cuts[index(body.send[i].buffer)];
        const TensorCut*& received = cuts[index(body.receive[i].operand.buffer)];
        if (received == nullptr) received = sent;
        if (sent == nullptr) sent = received;
      }
    }
  };
  // Parameters pass through two collectives, from an updated piece to their use.
  for (int pass = 0; pass < 2 && any; ++pass) {
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) std::visit(follow, op.body);
    }
  }
  return cuts;
}

OriginCuts::OriginCuts(const Schedule& schedule, RankValues& values)
    : cuts_(schedule.buffers.size()) {
  RankExpression part;
  const std::vector<const TensorCut*> cuts = cuts_of_buffers(schedule);
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] == nullptr) continue;
    cuts_[i] = {cuts[i]->axis, values.of(cuts[i]->part)};
    if (cuts[i]->ways > ways_) part = cuts[i]->part;
    ways_ = std::max(ways_, cuts[i]->ways);
  }
  if (ways_ == 1) return;
  part_ = values.of(part);
  std::vector<std::uint64_t> numbers;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    numbers.push_back(number_of(values.at(part_, rank)));
  }
  number_ = values.of(numbers);
  std::uint64_t all = 0;
  for (std::int64_t i = 0; i < ways_; ++i) all += number_of(static_cast<std::uint64_t>(i));
  whole_ = RankValues::constant(static_cast<std::int64_t>(all));
}

}  // namespace fpdt
