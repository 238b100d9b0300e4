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
  const auto same = [&](const Operand& from, const Target& to) {
    if (!from.present() || !to.present()) return false;
    const TensorCut*& sent = cuts[index(from.buffer)];
    const TensorCut*& received = cuts[index(to.operand.buffer)];
    if ((sent == nullptr) == (received == nullptr)) return false;
    (sent == nullptr ? sent : received) = sent == nullptr ? received : sent;
    return true;
  };
  // Masters and moments of all tensors pass through the same buffers.
  const auto has_one_tensor = [&](BufferIndex buffer) {
    const Category category = schedule.buffers[index(buffer)].category;
    return category == Category::weights || category == Category::gradients;
  };
  const auto follow = [&](const auto& body) {
    using Kind = std::decay_t<decltype(body)>;
    bool found = false;
    if constexpr (IsCollective<Kind>) {
      // An S207 may stand: pairs that are not whole.
      for (std::size_t i = 0; i < std::min(body.send.size(), body.receive.size()); ++i) {
        found = same(body.send[i], body.receive[i]) || found;
      }
    }
    if constexpr (std::is_same_v<Kind, Copy>) {
      found = body.source.present() && has_one_tensor(body.source.buffer) &&
              same(body.source, body.target);
    }
    return found;
  };
  // Some are known by what becomes of them in an op before.
  for (bool found = any; found;) {
    found = false;
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) found = std::visit(follow, op.body) || found;
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
