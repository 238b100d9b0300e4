// Integers that differ from rank to rank, as small handles, so that a property of all ranks costs
// hardly more than that of one. Internal to the verifier.
//
// On rank r a value is scale * base[r] + offset, modulo 2^64. Bases are vectors over all ranks and
// are kept once; a schedule needs few. What a collective does to a base is computed once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

struct RankValue {
  std::int32_t base = 0;  // 0: the same on every rank
  std::uint64_t scale = 0;
  std::uint64_t offset = 0;

  auto operator<=>(const RankValue&) const = default;
  [[nodiscard]] RankValue plus(std::int64_t n) const {
    return {base, scale, offset + static_cast<std::uint64_t>(n)};
  }
  [[nodiscard]] RankValue times(std::uint64_t n) const {
    return n == 0 ? RankValue{} : RankValue{base, scale * n, offset * n};
  }
};

class RankValues {
 public:
  explicit RankValues(const Schedule& schedule);

  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
  // Whether more was asked for than is ever computed or held. Results are then meaningless.
  [[nodiscard]] bool exhausted() const { return work_ > kMostWork || held_ > kMostHeld; }
  // Counts work of the caller that is proportional to n.
  void charge(std::int64_t n) { work_ += n; }

  static RankValue constant(std::int64_t n) { return {0, 0, static_cast<std::uint64_t>(n)}; }
  RankValue of(const RankExpression& e);
  RankValue of(const std::vector<std::uint64_t>& on_ranks);
  [[nodiscard]] std::uint64_t at(const RankValue& value, std::int64_t rank) const {
    return value.base == 0 ? value.offset
                           : value.scale * (*bases_[static_cast<std::size_t>(
                                               value.base)])[static_cast<std::size_t>(rank)] +
                                 value.offset;
  }
  RankValue sum(const RankValue& a, const RankValue& b);
  // The least and greatest over all ranks, as signed integers.
  const RankBounds& bounds(const RankValue& value);
  // The first rank on which the two differ; -1: none.
  std::int64_t difference(const RankValue& a, const RankValue& b);

  // On each rank, the value on member `member` of its group.
  RankValue of_member(const RankValue& value, const Group& group, std::int64_t member);
  // On each rank, the value on the member whose send it receives in an exchange.
  RankValue of_source(const RankValue& value, const Group& group, std::int64_t hop);
  // On each rank, the sum over its group.
  RankValue of_all(const RankValue& value, const Group& group);
  // On each rank, the value in the list that has the rank's number in its group.
  RankValue chosen(std::span<const RankValue> list, const Group& group);
  // The values that the members of a group receive if each sends list[i] to member i: for each
  // sender, the value on each rank.
  std::vector<RankValue> dealt(std::span<const RankValue> list, const Group& group);
  // Whether the value is the same on all members of each group.
  bool same_within(const RankValue& value, const Group& group);

 private:
  // The most numbers to compute in all, some seconds, and to hold, 1 GiB.
  static constexpr std::int64_t kMostWork = std::int64_t{1} << 30;
  static constexpr std::int64_t kMostHeld = std::int64_t{1} << 27;

  enum class Move : std::uint8_t { member, source, all };
  using Base = std::vector<std::uint64_t>;

  [[nodiscard]] std::int64_t member_of(const Group& group, std::int64_t rank) const {
    return (rank - group.first.at(rank)) / group.stride;
  }
  RankValue moved(const RankValue& value, const Group& group, Move move, std::int64_t n);

  std::int64_t ranks_;
  std::int64_t work_ = 0;
  std::int64_t held_ = 0;
  std::map<Base, std::int32_t> numbers_;
  std::vector<const Base*> bases_;
  std::map<std::tuple<std::int32_t, const Group*, Move, std::int64_t>, RankValue> moved_;
  std::map<std::pair<RankValue, RankValue>, RankValue> sums_;
  std::map<std::array<std::int64_t, 8>, RankValue> terms_;  // expressions without their constant
  std::map<RankValue, RankBounds> bounds_;
};

}  // namespace fpdt
