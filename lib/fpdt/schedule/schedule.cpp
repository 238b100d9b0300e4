// Lookups in a schedule.
#include "fpdt/schedule/schedule.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "fpdt/base/assert.h"
#include "fpdt/base/math.h"

namespace fpdt {

Bytes placed_bytes(const Schedule& schedule, MemorySpace space) {
  Bytes end;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space != space) continue;
    FPDT_ASSERT(buffer.offset >= 0);
    end = std::max(end, Bytes{buffer.offset} + buffer.bytes());
  }
  return end;
}

const Group& group_named(const Schedule& schedule, std::string_view name) {
  const auto found = std::find_if(schedule.groups.begin(), schedule.groups.end(),
                                  [name](const Group& group) { return group.name == name; });
  FPDT_ASSERT(found != schedule.groups.end());
  return *found;
}

const Group& group_of(const Schedule& schedule, const Body& body) {
  std::string_view name;
  std::visit(
      [&name](const auto& op) {
        if constexpr (IsCollective<std::decay_t<decltype(op)>>) name = op.group;
      },
      body);
  return group_named(schedule, name);
}

std::int64_t piece_elements(const State& state) {
  const std::int64_t elements = part_elements(state);
  if (state.shards == 1) return elements;
  return mul(div_ceil(elements, mul(state.shards, state.replicas)), state.replicas);
}

std::int64_t part_elements(const State& state) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : state.shape) elements = mul(elements, extent);
  if (state.cut.sections.empty()) return elements;
  const std::int64_t axis = state.shape[static_cast<std::size_t>(state.cut.axis)];
  std::int64_t held = 0;
  for (const std::int64_t section : state.cut.sections) held += section / state.cut.ways;
  return mul(elements / axis, held);
}

}  // namespace fpdt
