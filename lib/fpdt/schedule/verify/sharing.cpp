// S705: pieces of tensors and terms of sums, from the state table through collectives.
//
// A gather must join the pieces of its ranks in the order of the tensor, and end in the whole or in
// the pieces that the state table says. A sum of gradients must receive the terms of every rank
// with the same part of the tensor once, and so must a total of those of all ranks. Each rank's
// terms have a pseudo-random number, so a sum that received each once is known by its number.
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

using OnRanks = std::vector<std::uint64_t>;  // a number for each rank

// Equal pieces of a tensor, or of a part of one, and which of them each rank has.
struct Pieces {
  std::int64_t shards = 1;
  OnRanks piece;
  bool operator==(const Pieces&) const = default;
};

struct Sum {
  Pieces pieces;
  OnRanks terms;
};

std::uint64_t number_of(std::int64_t rank) {
  const std::uint64_t n = (static_cast<std::uint64_t>(rank) + 1) * 0xd1342543de82ef95U;
  return n ^ (n >> 29U);
}

class Sharing {
 public:
  Sharing(const Schedule& schedule, Findings& findings)
      : schedule_(schedule), findings_(findings), ranks_(index(schedule.ranks)) {
    for (const State& state : schedule.states) states_.emplace(state.buffer, &state);
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) {
        std::visit([this](const auto& body) { note(body); }, op.body);
      }
    }
  }

  void check() {
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        block_ = &block;
        op_ = &op;
        std::visit([this](const auto& body) { check(body); }, op.body);
      }
    }
  }

 private:
  // The group and the operand that a collective fills a buffer from.
  struct Source {
    const Group* group;
    BufferIndex buffer;
  };
  using Sources = std::map<BufferIndex, Source>;

  template <class Body>
  void note(const Body&) {}
  void note(const AllGather& op) {
    note(op, gathers_);
    for (const Operand& one : op.send) passed_on_.insert(one.buffer);
  }
  void note(const ReduceScatter& op) { note(op, sums_); }
  void note(const AllReduce& op) { note(op, totals_); }
  template <class Collective>
  void note(const Collective& op, Sources& sources) {
    const Group& group = group_named(schedule_, op.group);
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      sources.emplace(op.receive[i].operand.buffer, Source{&group, op.send[i].buffer});
    }
  }
  void note(const AdamW& op) {
    if (op.param.present()) updates_.emplace(op.param.operand.buffer, op.grad.buffer);
  }

  template <class Body>
  void check(const Body&) {}

  void check(const AllGather& op) {
    const Group& group = group_named(schedule_, op.group);
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      const std::optional<Pieces> sent = pieces_of(op.send[i].buffer);
      if (!sent.has_value()) continue;
      const BufferIndex to = op.receive[i].operand.buffer;
      const std::optional<Pieces> joined = joined_over(*sent, group);
      const auto state = states_.find(to);
      if (!joined.has_value()) {
        fail(fmt::format("the ranks of group {} do not have consecutive pieces of {}", group.name,
                         name(op.send[i].buffer)));
      } else if (state != states_.end() ? *joined != pieces_of(*state->second)
                                        : joined->shards > 1 && !passed_on_.contains(to)) {
        fail(fmt::format("the pieces that group {} joins to {} are not all of it", group.name,
                         name(to)));
      }
    }
  }

  void check(const ReduceScatter& op) {
    const Group& group = group_named(schedule_, op.group);
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      const BufferIndex to = op.receive[i].operand.buffer;
      const auto state = states_.find(to);
      if (state != states_.end()) check(divided_over(sum_of(op.send[i].buffer), group), to);
    }
  }

  void check(const AdamW& op) {
    if (states_.contains(op.grad.buffer) && !sums_.contains(op.grad.buffer)) {
      check(sum_of(op.grad.buffer), op.grad.buffer);
    }
    check_total(op.norm.buffer);
  }

  void check(const Copy& op) {
    const Buffer& target = schedule_.buffers[index(op.target.operand.buffer)];
    if (target.role == Role::output && totals_.contains(op.source.buffer)) {
      check_total(op.source.buffer);
    }
  }

  // A state that holds a sum has its pieces, and the terms of all ranks with the same part.
  void check(const std::optional<Sum>& sum, BufferIndex buffer) {
    const State& state = *states_.at(buffer);
    std::map<std::int64_t, std::uint64_t> all;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      all[state.cut.part.at(rank)] += number_of(rank);
    }
    bool whole = sum.has_value() && sum->pieces == pieces_of(state);
    for (std::int64_t rank = 0; rank < schedule_.ranks && whole; ++rank) {
      whole = sum->terms[index(rank)] == all[state.cut.part.at(rank)];
    }
    if (whole) return;
    fail(fmt::format("{} is not the sum of its piece over each rank that has the same part",
                     name(buffer)));
  }

  void check_total(BufferIndex buffer) {
    std::uint64_t all = 0;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) all += number_of(rank);
    for (const std::uint64_t one : total_of(buffer)) {
      if (one == all) continue;
      return fail(fmt::format("{} is not the sum over all ranks", name(buffer)));
    }
  }

  [[nodiscard]] Pieces pieces_of(const State& state) const {
    Pieces pieces{state.shards, OnRanks(ranks_)};
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      pieces.piece[rank] =
          static_cast<std::uint64_t>(state.shard.at(static_cast<std::int64_t>(rank)));
    }
    return pieces;
  }

  // What a buffer has of a tensor, if that is known; `most`: how many collectives to go back.
  [[nodiscard]] std::optional<Pieces> pieces_of(BufferIndex buffer, int most = kMostSteps) const {
    const auto state = states_.find(buffer);
    if (state != states_.end()) return pieces_of(*state->second);
    const auto update = updates_.find(buffer);
    if (update != updates_.end() && most > 0) return pieces_of(update->second, most - 1);
    const auto gather = gathers_.find(buffer);
    if (gather == gathers_.end() || most == 0) return std::nullopt;
    const std::optional<Pieces> sent = pieces_of(gather->second.buffer, most - 1);
    return sent.has_value() ? joined_over(*sent, *gather->second.group) : std::nullopt;
  }

  // The sum that a buffer holds: its rank's own terms, unless it is part of a sum itself.
  [[nodiscard]] std::optional<Sum> sum_of(BufferIndex buffer, int most = kMostSteps) const {
    const auto sum = sums_.find(buffer);
    if (sum == sums_.end()) return Sum{{1, OnRanks(ranks_)}, own_terms()};
    if (most == 0) return std::nullopt;
    return divided_over(sum_of(sum->second.buffer, most - 1), *sum->second.group);
  }

  [[nodiscard]] OnRanks total_of(BufferIndex buffer, int most = kMostSteps) const {
    const auto total = totals_.find(buffer);
    if (total == totals_.end() || most == 0) return own_terms();
    return added_over(total_of(total->second.buffer, most - 1), *total->second.group);
  }

  [[nodiscard]] OnRanks own_terms() const {
    OnRanks terms(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      terms[rank] = number_of(static_cast<std::int64_t>(rank));
    }
    return terms;
  }

  // Calls visit(rank, first rank of its group, its number in the group).
  template <class Visit>
  void each_member(const Group& group, const Visit& visit) const {
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t first = group.first.at(rank);
      visit(index(rank), index(first), static_cast<std::uint64_t>((rank - first) / group.stride));
    }
  }

  // Pieces after a gather; none if they do not follow each other.
  [[nodiscard]] std::optional<Pieces> joined_over(const Pieces& sent, const Group& group) const {
    if (sent.shards % group.size != 0) return std::nullopt;
    const auto members = static_cast<std::uint64_t>(group.size);
    Pieces joined{sent.shards / group.size, OnRanks(ranks_)};
    bool fits = true;
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t member) {
      const std::uint64_t begin = sent.piece[first];
      fits = fits && begin % members == 0 && sent.piece[rank] == begin + member;
      joined.piece[rank] = begin / members;
    });
    return fits ? std::optional(std::move(joined)) : std::nullopt;
  }

  // Pieces and terms after a sum of which each member keeps a block; none if the members add up
  // different pieces.
  [[nodiscard]] std::optional<Sum> divided_over(const std::optional<Sum>& sent,
                                                const Group& group) const {
    if (!sent.has_value() || sent->pieces.shards > schedule_.ranks) return std::nullopt;
    const OnRanks& pieces = sent->pieces.piece;
    Sum sum{{sent->pieces.shards * group.size, OnRanks(ranks_)}, added_over(sent->terms, group)};
    bool fits = true;
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t member) {
      fits = fits && pieces[rank] == pieces[first];
      sum.pieces.piece[rank] = pieces[rank] * static_cast<std::uint64_t>(group.size) + member;
    });
    return fits ? std::optional(std::move(sum)) : std::nullopt;
  }

  [[nodiscard]] OnRanks added_over(const OnRanks& terms, const Group& group) const {
    OnRanks by_first(ranks_), sums(ranks_);
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t) {
      by_first[first] += terms[rank];
    });
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t) {
      sums[rank] = by_first[first];
    });
    return sums;
  }

  [[nodiscard]] const std::string& name(BufferIndex buffer) const {
    return schedule_.buffers[index(buffer)].name;
  }
  void fail(const std::string& message) {
    findings_.add("S705", place_of(*block_, *op_), message);
  }

  static constexpr int kMostSteps = 4;

  const Schedule& schedule_;
  Findings& findings_;
  std::size_t ranks_;
  std::map<BufferIndex, const State*> states_;
  Sources gathers_, sums_, totals_;
  std::map<BufferIndex, BufferIndex> updates_;  // from pieces of parameters to their gradients
  std::set<BufferIndex> passed_on_;             // by another gather
  const Block* block_ = nullptr;
  const Op* op_ = nullptr;
};

}  // namespace

void check_sharing(const Schedule& schedule, Findings& findings) {
  if (schedule.ranks > 1) Sharing(schedule, findings).check();
}

}  // namespace fpdt
