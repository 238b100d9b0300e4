// Adds up the numbers of tiles, token by token.
#include "fpdt/schedule/verify/origin_tiles.h"

#include <algorithm>
#include <type_traits>

#include "fpdt/base/math.h"

namespace fpdt {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t n) {
  n += 0x9e3779b97f4a7c15U;
  n = (n ^ (n >> 30U)) * 0xbf58476d1ce4e5b9U;
  n = (n ^ (n >> 27U)) * 0x94d049bb133111ebU;
  return n ^ (n >> 31U);
}

std::uint64_t number_in(const Block& block, const Op& op) {
  return mixed(static_cast<std::uint64_t>(&op - block.ops.data()));
}

// A sink counts as a tile of its queries without keys.
AttentionForward without_keys(const AttentionSink& sink) {
  AttentionForward tile;
  tile.q_first = sink.q_first;
  tile.q_rows = sink.q_rows;
  tile.heads = sink.heads;
  tile.head_first = sink.head_first;
  tile.pass = sink.pass;
  return tile;
}

template <class Attention>
constexpr bool kForward = std::is_same_v<Attention, AttentionForward>;

// Calls f(tile) if the op is one.
template <class F>
void if_tile(const Op& op, F&& f) {
  if (const auto* sink = std::get_if<AttentionSink>(&op.body)) f(without_keys(*sink));
  if (const auto* forward = std::get_if<AttentionForward>(&op.body)) f(*forward);
  if (const auto* backward = std::get_if<AttentionBackward>(&op.body)) f(*backward);
}

}  // namespace

OriginTiles::OriginTiles(const Schedule& schedule, RankValues& values, std::int64_t ways)
    : values_(values), ways_(ways), same_(RankValues::constant(1)) {
  std::vector<std::uint64_t> on_ranks;
  for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
    on_ranks.push_back(mixed(~static_cast<std::uint64_t>(rank)));
    replicas_.push_back(schedule.feeds.empty() ? 0 : schedule.feeds[0].replica.at(rank));
  }
  of_rank_ = values.of(on_ranks);
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if_tile(op, [&](const auto& tile) { add(block, op, tile); });
    }
  }
}

template <class Attention>
void OriginTiles::add(const Block& block, const Op& op, const Attention& tile) {
  const auto [place, fresh] = numbers_.try_emplace({&block, tile.pass, kForward<Attention>},
                                                   static_cast<std::int32_t>(sets_.size()));
  if (fresh) {
    Set& set = sets_.emplace_back();
    for (std::int64_t rank = 0; rank < values_.ranks(); ++rank) {
      set.heads.push_back(tile.head_first.at(rank) / tile.heads);
    }
    set.part = part_of(tile);
  }
  Set& set = sets_[index(place->second)];
  set.tiles.push_back(
      {{tile.q_first, tile.k_first}, {tile.q_rows, tile.k_rows}, number_in(block, op)});
  set.moves = set.moves || !is_constant(tile.q_first) || !is_constant(tile.k_first);
}

std::int32_t OriginTiles::set_of(const Block& block, const Op& op, Side side) const {
  std::int32_t set = -1;
  if_tile(op, [&](const auto& tile) {
    const bool forward = kForward<std::decay_t<decltype(tile)>>;
    set = 2 * numbers_.at({&block, tile.pass, forward}) + static_cast<std::int32_t>(side);
  });
  return set;
}

RankValue OriginTiles::part_of(const Block& block, const Op& op) const {
  return sets_[index(set_of(block, op, Side::queries) / 2)].part;
}

RankValue OriginTiles::number_of(const Block& block, const Op& op) {
  return own_number(sets_[index(set_of(block, op, Side::queries) / 2)]).times(number_in(block, op));
}

void OriginTiles::build(Set& set, Side side) {
  const auto at = static_cast<std::size_t>(side);
  // Tiles with the same tokens count as one.
  std::map<std::tuple<RankValue, std::int64_t>, std::uint64_t> together;
  for (const Tile& tile : set.tiles) {
    together[{values_.of(tile.first[at]), tile.rows[at]}] += tile.number;
  }
  for (std::int64_t rank = 0; rank < values_.ranks(); ++rank) {
    // If the tiles do not move, ranks with the same heads repeat each other, and so do replicas.
    const std::int64_t replica = set.moves ? replicas_[index(rank)] : 0;
    Steps& steps = set.steps[at][{replica, set.heads[index(rank)]}];
    if (!set.moves && !steps.empty()) continue;
    values_.charge(std::ssize(together));
    if (values_.exhausted()) return;
    for (const auto& [tokens, number] : together) {
      const auto first = static_cast<std::int64_t>(values_.at(std::get<RankValue>(tokens), rank));
      const std::uint64_t sum = number * values_.at(own_number(set), rank);
      steps.push_back({first, sum});
      steps.push_back({first + std::get<std::int64_t>(tokens), 0 - sum});
    }
  }
  for (auto& [key, steps] : set.steps[at]) {
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.token < b.token; });
    Steps joined;
    std::uint64_t sum = 0;
    for (const Step& step : steps) {
      sum += step.sum;
      if (joined.empty() || joined.back().token != step.token) joined.push_back({step.token, sum});
      joined.back().sum = sum;
    }
    steps = std::move(joined);
  }
}

bool OriginTiles::asks(const Steps& steps, std::int64_t first, std::int64_t end, std::uint64_t sum,
                       std::size_t& at) {
  const auto ends = [&](std::size_t i) {
    return i + 1 == steps.size() ? INT64_MAX : steps[i + 1].token;
  };
  if (at >= steps.size() || first < steps[at].token || first >= ends(at)) {
    const auto next =
        std::upper_bound(steps.begin(), steps.end(), first,
                         [](std::int64_t token, const Step& step) { return token < step.token; });
    if (next == steps.begin()) return false;
    at = index(next - steps.begin()) - 1;
  }
  for (std::size_t i = at; i < steps.size() && (i == at || steps[i].token < end); ++i) {
    if (steps[i].sum != sum) return false;
  }
  return true;
}

bool OriginTiles::is_whole(const StepsOfHeads& all, const RankValue& token, std::int64_t rows,
                           const RankValue& part, const RankValue& sum) {
  const RankBounds tokens = values_.bounds({token.base, token.scale, 0});
  const auto offset = static_cast<std::int64_t>(token.offset);
  std::size_t found = 0;
  for (const auto& [key, steps] : all) {
    if (static_cast<std::uint64_t>(key.second % ways_) != part.offset) continue;
    std::size_t at = 0;
    const std::int64_t first = offset + tokens.least;
    if (!asks(steps, first, offset + tokens.greatest + rows, sum.offset, at)) return false;
    ++found;
  }
  return found * index(ways_) == all.size();
}

std::int64_t OriginTiles::first_not_whole(std::int32_t number, const RankValue& token,
                                          std::int64_t rows, const RankValue& part,
                                          const RankValue& sum) {
  Set& set = sets_[index(number / 2)];
  StepsOfHeads& all = set.steps[number % 2];
  if (all.empty()) build(set, static_cast<Side>(number % 2));
  if (!set.moves && part.base == 0 && sum.base == 0 && is_whole(all, token, rows, part, sum)) {
    return -1;
  }
  values_.charge(values_.ranks());
  if (values_.exhausted()) return -1;
  std::pair<std::int64_t, std::int64_t> key{-1, -1};
  const Steps* steps = nullptr;
  std::size_t at = 0;
  for (std::int64_t rank = 0; rank < values_.ranks(); ++rank) {
    const std::int64_t head = set.heads[index(rank)];
    const std::pair wanted{set.moves ? replicas_[index(rank)] : 0,
                           head - head % ways_ + static_cast<std::int64_t>(values_.at(part, rank))};
    if (key != wanted) {
      const auto found = all.find(wanted);
      steps = found == all.end() ? nullptr : &found->second;
      key = wanted;
    }
    const auto first = static_cast<std::int64_t>(values_.at(token, rank));
    if (steps == nullptr || !asks(*steps, first, first + rows, values_.at(sum, rank), at))
      return rank;
  }
  return -1;
}

}  // namespace fpdt
