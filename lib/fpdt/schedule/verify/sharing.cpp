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
  bool fits = true;  // all terms are of one piece
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
      std::optional<Pieces> pieces = pieces_of(op.send[i].buffer);
      if (!pieces.has_value()) continue;
      const BufferIndex to = op.receive[i].operand.buffer;
      const auto state = states_.find(to);
      if (!join(*pieces, group)) {
        fail(fmt::format("the ranks of group {} do not have consecutive pieces of {}", group.name,
                         name(op.send[i].buffer)));
      } else if (state != states_.end() ? *pieces != pieces_of(*state->second)
                                        : pieces->shards > 1 && !passed_on_.contains(to)) {
        fail(fmt::format("the pieces that group {} joins to {} are not all of it", group.name,
                         name(to)));
      }
    }
  }

  void check(const ReduceScatter& op) {
    const Group& group = group_named(schedule_, op.group);
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      const BufferIndex to = op.receive[i].operand.buffer;
      if (!states_.contains(to)) continue;
      Sum sum = sum_of(op.send[i].buffer);
      divide(sum, group);
      check(sum, to);
    }
  }

  void check(const AdamW& op) {
    if (states_.contains(op.grad.buffer) && !sums_.contains(op.grad.buffer)) {
      check(sum_of(op.grad.buffer), op.grad.buffer);
    }
    if (pieces_of(op.grad.buffer).has_value()) check_total(op.norm.buffer);
  }

  void check(const Copy& op) {
    const Buffer& target = schedule_.buffers[index(op.target.operand.buffer)];
    if (target.role == Role::output && totals_.contains(op.source.buffer)) {
      check_total(op.source.buffer);
    }
  }

  // A state that holds a sum has its pieces, and the terms of all ranks with the same part.
  void check(const Sum& sum, BufferIndex buffer) {
    const State& state = *states_.at(buffer);
    std::map<std::int64_t, std::uint64_t> all;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      all[state.cut.part.at(rank)] += number_of(rank);
    }
    bool whole = sum.fits && sum.pieces == pieces_of(state);
    for (std::int64_t rank = 0; rank < schedule_.ranks && whole; ++rank) {
      whole = sum.terms[index(rank)] == all[state.cut.part.at(rank)];
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

  // The groups of the collectives, the first one first, through which a buffer came to hold what it
  // does; `buffer` is then what the first of them was filled from.
  [[nodiscard]] static std::vector<const Group*> way_to(BufferIndex& buffer,
                                                        const Sources& sources) {
    std::vector<const Group*> groups;
    for (auto from = sources.find(buffer); from != sources.end() && groups.size() < kMostSteps;
         from = sources.find(buffer)) {
      groups.insert(groups.begin(), from->second.group);
      buffer = from->second.buffer;
    }
    return groups;
  }

  // What a buffer has of a tensor, if that is known.
  [[nodiscard]] std::optional<Pieces> pieces_of(BufferIndex buffer) const {
    std::vector<const Group*> groups;
    if (!states_.contains(buffer)) groups = way_to(buffer, gathers_);
    const auto update = updates_.find(buffer);
    if (update != updates_.end()) buffer = update->second;
    const auto state = states_.find(buffer);
    if (state == states_.end()) return std::nullopt;
    Pieces pieces = pieces_of(*state->second);
    for (const Group* group : groups) {
      if (!join(pieces, *group)) return std::nullopt;
    }
    return pieces;
  }

  // The sum that a buffer holds: its rank's own terms, unless it is part of a sum itself.
  [[nodiscard]] Sum sum_of(BufferIndex buffer) const {
    Sum sum{{1, OnRanks(ranks_)}, own_terms()};
    for (const Group* group : way_to(buffer, sums_)) divide(sum, *group);
    return sum;
  }

  [[nodiscard]] OnRanks total_of(BufferIndex buffer) const {
    OnRanks terms = own_terms();
    for (const Group* group : way_to(buffer, totals_)) add_up(terms, *group);
    return terms;
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

  // Replaces pieces by what a gather joins; false if they do not follow each other.
  bool join(Pieces& pieces, const Group& group) const {
    if (pieces.shards % group.size != 0) return false;
    const auto members = static_cast<std::uint64_t>(group.size);
    pieces.shards /= group.size;
    OnRanks joined(ranks_);
    bool fits = true;
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t member) {
      const std::uint64_t begin = pieces.piece[first];
      fits = fits && begin % members == 0 && pieces.piece[rank] == begin + member;
      joined[rank] = begin / members;
    });
    pieces.piece.swap(joined);
    return fits;
  }

  // Adds up the terms of a group, of which each member keeps a block.
  void divide(Sum& sum, const Group& group) const {
    if (sum.pieces.shards > schedule_.ranks) return;  // a way that goes around
    sum.pieces.shards *= group.size;
    add_up(sum.terms, group);
    OnRanks blocks(ranks_);
    OnRanks& pieces = sum.pieces.piece;
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t member) {
      sum.fits = sum.fits && pieces[rank] == pieces[first];
      blocks[rank] = pieces[rank] * static_cast<std::uint64_t>(group.size) + member;
    });
    pieces.swap(blocks);
  }

  void add_up(OnRanks& terms, const Group& group) const {
    OnRanks sums(ranks_);
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t) {
      sums[first] += terms[rank];
    });
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t) {
      terms[rank] = sums[first];
    });
  }

  [[nodiscard]] const std::string& name(BufferIndex buffer) const {
    return schedule_.buffers[index(buffer)].name;
  }
  void fail(const std::string& message) { findings_.add("S705", place_of(*block_, *op_), message); }

  static constexpr std::size_t kMostSteps = 4;

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
