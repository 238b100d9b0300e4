// Placement: arenas, offsets, and the slots that share bytes.
#include "fpdt/schedule/verify/overlap.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

constexpr std::size_t kMostPairs = std::size_t{1} << 20;
constexpr std::int64_t kMostOffset = std::int64_t{1} << 56;
constexpr std::array kSpaces{MemorySpace::device, MemorySpace::host_pinned, MemorySpace::host};

struct Range {
  std::int64_t begin;
  std::int64_t end;
  std::size_t slot;
  std::size_t buffer;
};

// Byte ranges of every placed slot of one space, ordered by their start.
std::vector<Range> ranges_of(const Schedule& schedule, MemorySpace space) {
  std::vector<Range> ranges;
  std::size_t slot = 0;
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    for (std::int64_t i = 0; i < buffer.slots; ++i, ++slot) {
      if (buffer.space != space || buffer.offset < 0) continue;
      const std::int64_t begin = buffer.offset + i * buffer.slot_stride().value;
      ranges.push_back({begin, begin + buffer.slot_bytes().value, slot, b});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.begin, a.slot) < std::pair(b.begin, b.slot);
  });
  return ranges;
}

// Calls `visit(a, b)` for every two ranges that share bytes, until it returns false.
template <class Visit>
void for_each_pair(const std::vector<Range>& ranges, Visit&& visit) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (std::size_t j = i + 1; j < ranges.size() && ranges[j].begin < ranges[i].end; ++j) {
      if (!visit(ranges[i], ranges[j])) return;
    }
  }
}

bool shares_with_nothing(const Buffer& buffer) { return buffer.role != Role::temporary; }

void check_offsets(const Schedule& schedule, Findings& findings) {
  for (const MemorySpace space : kSpaces) {
    const Buffer* placed = nullptr;
    const Buffer* unplaced = nullptr;
    for (const Buffer& buffer : schedule.buffers) {
      if (buffer.space != space) continue;
      (buffer.offset == kUnplaced ? unplaced : placed) = &buffer;
      if (buffer.offset == kUnplaced) continue;
      if (buffer.offset < 0 || buffer.offset % kAlignment != 0 || buffer.offset > kMostOffset) {
        findings.add(
            "S402", "buffers." + buffer.name,
            fmt::format("offset {}, expected a multiple of {} from 0", buffer.offset, kAlignment));
      }
    }
    if (placed != nullptr && unplaced != nullptr) {
      findings.add("S401", "buffers." + unplaced->name,
                   fmt::format("has no offset, but {} of the same space has", placed->name));
    }
  }
}

}  // namespace

std::optional<Overlaps> overlaps_of(const Schedule& schedule) {
  std::size_t slots = 0;
  for (const Buffer& buffer : schedule.buffers) slots += static_cast<std::size_t>(buffer.slots);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const MemorySpace space : kSpaces) {
    for_each_pair(ranges_of(schedule, space), [&](const Range& a, const Range& b) {
      pairs.emplace_back(a.slot, b.slot);
      pairs.emplace_back(b.slot, a.slot);
      return pairs.size() <= kMostPairs;
    });
    if (pairs.size() > kMostPairs) return std::nullopt;
  }
  std::sort(pairs.begin(), pairs.end());
  Overlaps overlaps;
  overlaps.begin.assign(slots + 1, 0);
  for (const auto& [slot, other] : pairs) {
    ++overlaps.begin[slot + 1];
    overlaps.other.push_back(other);
  }
  for (std::size_t s = 0; s < slots; ++s) overlaps.begin[s + 1] += overlaps.begin[s];
  return overlaps;
}

void check_placement(const Schedule& schedule, Findings& findings) {
  check_offsets(schedule, findings);
  if (findings.any("S4")) return;
  for (const MemorySpace space : kSpaces) {
    for_each_pair(ranges_of(schedule, space), [&](const Range& a, const Range& b) {
      const Buffer& one = schedule.buffers[a.buffer];
      const Buffer& other = schedule.buffers[b.buffer];
      if (shares_with_nothing(one) || shares_with_nothing(other)) {
        const Buffer& kept = shares_with_nothing(one) ? one : other;
        findings.add("S403", "buffers." + kept.name,
                     fmt::format("a {} buffer shares bytes with {}", word(kept.role),
                                 (&kept == &one ? other : one).name));
      }
      return !findings.full();
    });
  }
}

}  // namespace fpdt
