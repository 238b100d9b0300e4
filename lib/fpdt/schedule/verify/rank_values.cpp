// Computes vectors over ranks, each once.
#include "fpdt/schedule/verify/rank_values.h"

#include <algorithm>

#include "fpdt/base/math.h"

namespace fpdt {

RankValues::RankValues(const Schedule& schedule) : ranks_(schedule.ranks) {
  of(std::vector<std::uint64_t>(index(ranks_), 0));
}

RankValue RankValues::of(const RankExpression& e) {
  if (is_constant(e)) return constant(e.a);
  const std::array terms{e.first.b,  e.first.s,  e.first.m,  e.first.n,
                         e.second.b, e.second.s, e.second.m, e.second.n};
  const auto [place, fresh] = terms_.try_emplace(terms);
  if (fresh) {
    Base on_ranks;
    on_ranks.reserve(index(ranks_));
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      on_ranks.push_back(static_cast<std::uint64_t>(e.at(rank) - e.a));
    }
    place->second = of(on_ranks);
  }
  return place->second.plus(e.a);
}

RankValue RankValues::of(const std::vector<std::uint64_t>& on_ranks) {
  charge(ranks_);
  if (exhausted()) return {};
  const std::uint64_t offset = on_ranks[0];
  Base base = on_ranks;
  for (std::uint64_t& one : base) one -= offset;
  const auto [place, fresh] =
      numbers_.try_emplace(std::move(base), static_cast<std::int32_t>(bases_.size()));
  if (fresh) {
    held_ += ranks_;
    bases_.push_back(&place->first);
  }
  return {place->second, place->second == 0 ? 0U : 1U, offset};
}

RankValue RankValues::sum(const RankValue& a, const RankValue& b) {
  const std::uint64_t offset = a.offset + b.offset;
  if (b.base == 0) return {a.base, a.scale, offset};
  if (a.base == 0) return {b.base, b.scale, offset};
  if (a.base == b.base) {
    const std::uint64_t scale = a.scale + b.scale;
    return {scale == 0 ? 0 : a.base, scale, offset};
  }
  const auto key = std::minmax({RankValue{a.base, a.scale, 0}, RankValue{b.base, b.scale, 0}});
  const auto known = sums_.find(key);
  if (known != sums_.end()) return known->second.plus(static_cast<std::int64_t>(offset));
  Base on_ranks;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    on_ranks.push_back(at(key.first, rank) + at(key.second, rank));
  }
  const RankValue added = of(on_ranks);
  sums_.emplace(key, added);
  return added.plus(static_cast<std::int64_t>(offset));
}

const RankBounds& RankValues::bounds(const RankValue& value) {
  const auto [place, fresh] = bounds_.try_emplace(value);
  if (fresh) {
    charge(ranks_);
    const auto first = static_cast<std::int64_t>(at(value, 0));
    place->second = {first, first};
    for (std::int64_t rank = 1; rank < ranks_; ++rank) {
      const auto one = static_cast<std::int64_t>(at(value, rank));
      place->second.least = std::min(place->second.least, one);
      place->second.greatest = std::max(place->second.greatest, one);
    }
  }
  return place->second;
}

std::int64_t RankValues::difference(const RankValue& a, const RankValue& b) {
  if (a == b) return -1;
  charge(ranks_);
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (at(a, rank) != at(b, rank)) return rank;
  }
  return -1;
}

RankValue RankValues::of_member(const RankValue& value, const Group& group, std::int64_t member) {
  return moved(value, group, Move::member, member);
}

RankValue RankValues::of_source(const RankValue& value, const Group& group, std::int64_t hop) {
  return moved(value, group, Move::source, hop);
}

RankValue RankValues::of_all(const RankValue& value, const Group& group) {
  return moved(value, group, Move::all, 0);
}

RankValue RankValues::moved(const RankValue& value, const Group& group, Move move, std::int64_t n) {
  const std::uint64_t offset =
      move == Move::all ? value.offset * static_cast<std::uint64_t>(group.size) : value.offset;
  if (value.base == 0) return {0, 0, offset};
  const auto [place, fresh] = moved_.try_emplace({value.base, &group, move, n});
  if (fresh) {
    charge(move == Move::all ? group.size * ranks_ : ranks_);
    if (exhausted()) return {};
    const Base& base = *bases_[index(value.base)];
    Base on_ranks;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      const std::int64_t first = group.first.at(rank);
      const auto of_number = [&](std::int64_t member) {
        return base[index(first + member * group.stride)];
      };
      std::uint64_t one = 0;
      if (move == Move::all) {
        for (std::int64_t member = 0; member < group.size; ++member) one += of_number(member);
      } else {
        one =
            of_number(move == Move::member ? n : source_of(n, member_of(group, rank), group.size));
      }
      on_ranks.push_back(one);
    }
    place->second = of(on_ranks);
  }
  return place->second.times(value.scale).plus(static_cast<std::int64_t>(offset));
}

RankValue RankValues::chosen(std::span<const RankValue> list, const Group& group) {
  if (std::all_of(list.begin(), list.end(), [&](const auto& one) { return one == list[0]; })) {
    return list[0];
  }
  Base on_ranks;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    on_ranks.push_back(at(list[index(member_of(group, rank))], rank));
  }
  return of(on_ranks);
}

std::vector<RankValue> RankValues::dealt(std::span<const RankValue> list, const Group& group) {
  const RankValue shared{list[0].base, list[0].scale, 0};
  // Most lists differ by constants alone, which do not depend on the sender.
  const bool alike = std::all_of(list.begin(), list.end(), [&](const RankValue& one) {
    return one.base == shared.base && one.scale == shared.scale;
  });
  std::vector<RankValue> rest(list.begin(), list.end());
  for (RankValue& one : rest) one = {0, 0, one.offset};
  const RankValue constants = chosen(rest, group);
  std::vector<RankValue> received;
  for (std::int64_t sender = 0; sender < group.size && !exhausted(); ++sender) {
    if (alike) {
      received.push_back(sum(of_member(shared, group, sender), constants));
      continue;
    }
    for (std::size_t i = 0; i < list.size(); ++i) rest[i] = of_member(list[i], group, sender);
    received.push_back(chosen(rest, group));
  }
  received.resize(list.size());
  return received;
}

bool RankValues::same_within(const RankValue& value, const Group& group) {
  return value.base == 0 || difference(value, of_member(value, group, 0)) < 0;
}

}  // namespace fpdt
