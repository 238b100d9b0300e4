// Which attention tiles the sum of a token must have received. Internal to the verifier.
//
// Each tile has a number on each rank, and a sum is known by the sum of the numbers of its tiles.
// Numbers are pseudo-random and 64 bits wide, so two different collections of tiles have the same
// sum with a probability of 2^-64. S5xx proves that the tiles of a pass cover each pair once. So a
// sum is whole if it has received, once, every tile that has its token.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "fpdt/schedule/verify/rank_values.h"

namespace fpdt {

class OriginTiles {
 public:
  enum class Side : std::uint8_t { queries, keys };

  // `ways`: the parts into which split_heads divides the heads.
  OriginTiles(const Schedule& schedule, RankValues& values, std::int64_t ways);

  // The number of a set: the tiles of a kind and pass in a block, with their queries or keys.
  [[nodiscard]] std::int32_t set_of(const Block& block, const Op& op, Side side) const;
  static bool is_of(std::int32_t set, Side side) {
    return set >= 0 && set % 2 == static_cast<std::int32_t>(side);
  }
  // The part of the heads that a tile has.
  [[nodiscard]] RankValue part_of(const Block& block, const Op& op) const;
  // The same by the heads that an op states.
  template <class Heads>
  [[nodiscard]] RankValue part_of(const Heads& op) const {
    std::vector<std::uint64_t> parts;
    for (std::int64_t rank = 0; rank < values_.ranks(); ++rank) {
      parts.push_back(static_cast<std::uint64_t>(op.head_first.at(rank) / op.heads % ways_));
    }
    return values_.of(parts);
  }
  // The number of a tile on each rank.
  RankValue number_of(const Block& block, const Op& op);
  // The first rank on which `sum` is not that of all tiles of the set that have the tokens
  // [token, +rows) and these heads; -1: none. `token` counts within the replica.
  std::int64_t first_not_whole(std::int32_t set, const RankValue& token, std::int64_t rows,
                               const RankValue& part, const RankValue& sum);

 private:
  struct Tile {
    RankExpression first[2];  // by side
    std::int64_t rows[2];
    std::uint64_t number;
  };
  // The sum that the tokens from `token` on, up to those of the next step, must have received.
  struct Step {
    std::int64_t token;
    std::uint64_t sum;
  };
  using Steps = std::vector<Step>;
  using StepsOfHeads = std::map<std::pair<std::int64_t, std::int64_t>, Steps>;  // replica and head
  struct Set {
    std::vector<Tile> tiles;
    std::vector<std::int64_t> heads;  // of each rank: the first, in multiples of those of a tile
    RankValue part;
    bool moves = false;     // ranks with the same heads share out the triangle
    StepsOfHeads steps[2];  // [side]
  };

  [[nodiscard]] const RankValue& own_number(const Set& set) const {
    return set.moves ? of_rank_ : same_;
  }
  template <class Attention>
  void add(const Block& block, const Op& op, const Attention& tile);
  void build(Set& set, Side side);
  // Whether the steps ask for `sum` from one token to another. `at`: a step that may hold the first
  // token, and then the step that does.
  static bool asks(const Steps& steps, std::int64_t first, std::int64_t end, std::uint64_t sum,
                   std::size_t& at);
  // The same where tiles do not move, and neither the part nor the sum depends on the rank.
  bool is_whole(const StepsOfHeads& all, const RankValue& token, std::int64_t rows,
                const RankValue& part, const RankValue& sum);

  RankValues& values_;
  std::int64_t ways_;
  std::vector<std::int64_t> replicas_;  // of each rank
  RankValue of_rank_;
  RankValue same_;
  std::vector<Set> sets_;
  std::map<std::tuple<const Block*, Pass, bool>, std::int32_t> numbers_;  // bool: forward
};

}  // namespace fpdt
