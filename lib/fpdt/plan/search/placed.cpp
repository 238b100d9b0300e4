// Places strategies, or shorter ones in their place.
#include "fpdt/plan/search/placed.h"

#include "fpdt/plan/few_tiles.h"

namespace fpdt {
Room room_of(const Problem& problem, const Strategy& strategy, const Usage& placed) {
  const Usage predicted = usage(problem, strategy);
  return {predicted.arena - placed.arena, predicted.host_node - placed.host_node};
}

Room placement_gain(const Problem& problem, const Strategy& strategy) {
  return room_of(problem, strategy, usage(problem, strategy, placement_of(problem, strategy)));
}

Problem with_room(Problem problem, const Room& room) {
  problem.device_budget += room.device;
  problem.host_budget += room.host;
  return problem;
}

Bytes part(Bytes whole, double share) {
  return Bytes{static_cast<std::int64_t>(share * static_cast<double>(whole.value))};
}

std::optional<Room> gain_of_few_chunks(const Problem& problem, const Strategy& strategy) {
  constexpr std::int64_t kFewChunks = 16;
  const Geometry shape = geometry(problem, strategy);
  if (shape.chunks <= kFewChunks) return std::nullopt;
  Problem shorter = problem;
  Strategy few = strategy;
  shorter.seq_len = kFewChunks * shape.chunk_rows;
  for (LayerClass& one : few.layer_classes) {
    one.first_stored_chunk = one.first_stored_chunk * kFewChunks / shape.chunks;
  }
  if (!check(shorter, few).empty()) return std::nullopt;
  return room_of(shorter, few, usage(shorter, few, placement_by_few_layers(shorter, few)));
}

bool may_fit_placed(const Problem& problem, const Strategy& strategy) {
  constexpr double kNear = 1.0 / 256;
  const std::optional<Room> gain = gain_of_few_chunks(problem, strategy);
  if (!gain) return true;
  const Room near{part(problem.device_budget, kNear), part(problem.host_budget, kNear)};
  return within(with_room(with_room(problem, *gain), near), usage(problem, strategy));
}

}  // namespace fpdt
