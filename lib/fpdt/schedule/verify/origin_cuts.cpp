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
    if (state.cut.sections.empty()) continue;
    cuts[index(state.buffer)] = &state.cut;
    any = true;
  }
  const auto follow = [&](const auto& body) {
    if constexpr (IsCollective<std::decay_t<decltype(body)>>) {
      // An S207 may stand: pairs that are not whole.
      for (std::size_t i = 0; i < std::min(body.send.size(), body.receive.size()); ++i) {
        if (!body.send[i].present() || !body.receive[i].present()) continue;
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
  const std::vector<const TensorCut*> cuts = cuts_of_buffers(schedule);
  for (const TensorCut* cut : cuts) {
    if (cut == nullptr || cut->ways < ways_) continue;
    ways_ = cut->ways;
    part_ = values.of(cut->part);
  }
  if (ways_ == 1) return;
  std::vector<std::uint64_t> numbers;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    numbers.push_back(number_of(values.at(part_, rank)));
  }
  const RankValue number = values.of(numbers);
  part_of_keys_ = part_;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] == nullptr) continue;
    const bool keys = cuts[i]->ways < ways_;
    cuts_[i] = {cuts[i]->axis, values.of(cuts[i]->part), keys ? RankValue{} : number};
    if (keys) part_of_keys_ = cuts_[i].part;
  }
  std::uint64_t all = 0;
  for (std::int64_t i = 0; i < ways_; ++i) all += number_of(static_cast<std::uint64_t>(i));
  whole_ = RankValues::constant(static_cast<std::int64_t>(all));
}

}  // namespace fpdt
