// S705: pieces of tensors and terms of sums, from the state table through collectives, and through
// copies of parameters and gradients whose home is on the host.
//
// A gather must join the pieces of its ranks in the order of the tensor, and end in the whole or in
// the pieces that the state table says. A sum of gradients must receive the terms of every rank
// with the same part of the tensor once, and so must a total of those of all ranks. Each rank's
// terms have a pseudo-random number, so a sum that received each once is known by its number.
//
// This part knows buffers, not their versions: all entries of a buffer are alike, whatever fills a
// buffer must fill it alike, and operands are whole. It knows nothing of masters and moments that
// stream through the device, nor of gradients that no entry names.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
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
  bool known = true;
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
    each_op([this](const auto& body) { note(body); });
    // What goes home in whole begins empty, as its home does.
    for (const BufferIndex one : added_) {
      if (!goes_home_.contains(one)) parts_.insert(one);
    }
  }

  void check() {
    check_entries();
    each_op([this](const auto& body) { check(body); });
  }

 private:
  // The group and the operand that a collective fills a buffer from; a copy has no group.
  struct Source {
    const Group* group;
    BufferIndex buffer;
    auto operator<=>(const Source&) const = default;
  };
  using Sources = std::map<BufferIndex, std::set<Source>>;
  // The groups of collectives, the first one first, through which a buffer came to hold what it
  // does, what the first of them was filled from, and the copies before it.
  struct Way {
    std::vector<const Group*> groups;
    BufferIndex from;
    std::vector<BufferIndex> copied{};
  };

  template <class Visit>
  void each_op(const Visit& visit) {
    for (const Block& block : schedule_.blocks) {
      for (const Op& op : block.ops) {
        if (work_ > kMostWork) return;
        block_ = &block;
        op_ = &op;
        std::visit(visit, op.body);
        if (work_ <= kMostWork) continue;
        findings_.add("S704", place_of(block, op),
                      "more ranks share more than the verifier follows");
      }
    }
  }

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
      const Operand& to = op.receive[i].operand;
      sources[to.buffer].insert({&group, op.send[i].buffer});
      if (op.receive[i].accumulate && !states_.contains(to.buffer)) added_.insert(to.buffer);
      if (!whole(to) || !whole(op.send[i])) parts_.insert(to.buffer);
    }
  }
  void note(const Copy& op) {
    const BufferIndex from = op.source.buffer, to = op.target.operand.buffer;
    const auto has_tensor = [&](BufferIndex buffer) {
      const Category category = schedule_.buffers[index(buffer)].category;
      return category == Category::weights || category == Category::gradients;
    };
    if (!has_tensor(from) || !has_tensor(to)) return;
    if (!whole(op.source) || !whole(op.target.operand)) parts_.insert(to);
    if (!states_.contains(from)) sums_[to].insert({nullptr, from});
    if (!states_.contains(from)) goes_home_.insert(from);
    if (!states_.contains(to)) gathers_[to].insert({nullptr, from});
  }
  void note(const AdamW& op) {
    if (op.param.present()) updates_[op.param.operand.buffer].insert(op.grad.buffer);
  }

  [[nodiscard]] bool whole(const Operand& operand) const {
    const std::int64_t rows = schedule_.buffers[index(operand.buffer)].rows();
    return operand.row_first == 0 && (operand.rows < 0 || operand.rows == rows);
  }

  // All entries of a buffer have the same pieces of the same parts.
  void check_entries() {
    for (const State& state : schedule_.states) {
      const State& first = *states_.at(state.buffer);
      const auto shared = [](const State& one) {
        return std::tuple(one.shards, one.replicas, one.cut.ways);
      };
      if (shared(first) == shared(state) && first.shard == state.shard &&
          first.cut.part == state.cut.part) {
        continue;
      }
      findings_.add("S705", fmt::format("states.{}/{}", state.tensor, state.kind),
                    fmt::format("{} has other pieces of {}", name(state.buffer), first.tensor));
    }
  }

  template <class Body>
  void check(const Body&) {}

  void check(const AllGather& op) {
    const Group& group = group_named(schedule_, op.group);
    for (std::size_t i = 0; i < op.send.size(); ++i) {
      const BufferIndex from = op.send[i].buffer, to = op.receive[i].operand.buffer;
      for (Pieces& pieces : all_pieces_of(from)) {
        if (!pieces.known) continue;
        const auto state = states_.find(to);
        if (parts_.contains(to) || !join(pieces, group)) {
          fail(fmt::format("the ranks of group {} do not have consecutive pieces of {}", group.name,
                           name(from)));
        } else if (state != states_.end() ? pieces != pieces_of(*state->second)
                                          : pieces.shards > 1 && !passed_on_.contains(to)) {
          fail(fmt::format("the pieces that group {} joins to {} are not all of it", group.name,
                           name(to)));
        }
      }
    }
  }

  void check(const ReduceScatter& op) {
    for (const Target& target : op.receive) {
      if (states_.contains(target.operand.buffer)) check_sum(target.operand.buffer);
    }
  }

  void check(const AdamW& op) {
    const std::vector<Pieces> updated = all_pieces_of(op.grad.buffer);
    for (const Pieces& pieces : updated) {
      if (!pieces.known) return;
      for (const Operand* one : {&op.master, &op.m, &op.v}) {
        const auto state = states_.find(one->buffer);
        if (state == states_.end() || pieces_of(*state->second) == pieces) continue;
        fail(fmt::format("{} has other pieces than its gradient", name(one->buffer)));
      }
    }
    if (const BufferIndex home = home_of(op.grad.buffer); home >= 0) check_sum(home);
    check_total(op.norm.buffer);
  }

  void check(const Copy& op) {
    const Buffer& target = schedule_.buffers[index(op.target.operand.buffer)];
    if (target.role == Role::output && totals_.contains(op.source.buffer)) {
      check_total(op.source.buffer);
    }
    const auto update = updates_.find(op.source.buffer);
    const auto home = states_.find(op.target.operand.buffer);
    if (update == updates_.end() || home == states_.end()) return;
    for (const BufferIndex gradient : update->second) {
      for (const Pieces& pieces : all_pieces_of(gradient)) {
        if (!pieces.known || pieces == pieces_of(*home->second)) continue;
        fail(fmt::format("{} has other pieces than its gradient", name(home->first)));
      }
    }
  }

  // The state that a buffer has, or has a copy of; -1: none.
  [[nodiscard]] BufferIndex home_of(BufferIndex buffer) const {
    for (std::size_t i = 0; i < kMostSteps; ++i) {
      if (states_.contains(buffer)) return buffer;
      const auto from = gathers_.find(buffer);
      if (from == gathers_.end() || from->second.size() != 1) return -1;
      if (from->second.begin()->group != nullptr) return -1;
      buffer = from->second.begin()->buffer;
    }
    return -1;
  }

  // A state that holds a sum has its pieces, and the terms of all ranks with the same part. What
  // comes back from it for more terms of the same ranks has them already.
  void check_sum(BufferIndex buffer) {
    const State& state = *states_.at(buffer);
    std::map<std::int64_t, std::uint64_t> all;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      all[state.cut.part.at(rank)] += number_of(rank);
    }
    const Pieces pieces = pieces_of(state);
    std::vector<Way> ways = ways_to(buffer, sums_);
    const auto returns = [&](const Way& way) {
      return way.groups.empty() && way.from != buffer && home_of(way.from) == buffer;
    };
    if (!std::all_of(ways.begin(), ways.end(), returns)) std::erase_if(ways, returns);
    for (const Way& way : ways) {
      Sum sum;
      sum.pieces.piece.resize(ranks_);
      sum.terms = own_terms();
      for (const Group* group : way.groups) divide(sum, *group);
      bool right = sum.fits && sum.pieces == pieces;
      for (std::int64_t rank = 0; rank < schedule_.ranks && right; ++rank) {
        right = sum.terms[index(rank)] == all[state.cut.part.at(rank)];
      }
      if (right) continue;
      return fail(fmt::format(
          "{} is not the sum of its piece over each rank that has the same part", name(buffer)));
    }
  }

  void check_total(BufferIndex buffer) {
    std::uint64_t all = 0;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) all += number_of(rank);
    for (const Way& way : ways_to(buffer, totals_)) {
      OnRanks terms = own_terms();
      for (const Group* group : way.groups) add_up(terms, *group);
      if (terms == OnRanks(ranks_, all)) continue;
      return fail(fmt::format("{} is not the sum over all ranks", name(buffer)));
    }
  }

  [[nodiscard]] Pieces pieces_of(const State& state) {
    work_ += schedule_.ranks;
    Pieces pieces{state.shards, OnRanks(ranks_)};
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      pieces.piece[rank] =
          static_cast<std::uint64_t>(state.shard.at(static_cast<std::int64_t>(rank)));
    }
    return pieces;
  }

  // All ways in which a buffer is filled; itself alone if no collective fills it. A way that passes
  // buffers of which only parts are moved, or that does not end, has no groups. Copies that lead
  // back to their buffer end where they began: a rank goes on with terms that it has put aside.
  [[nodiscard]] std::vector<Way> ways_to(BufferIndex buffer, const Sources& sources) {
    std::vector<Way> ways{{{}, buffer}}, found;
    for (std::size_t i = 0; i < ways.size() && work_ <= kMostWork; ++i) {
      const Way way = ways[i];
      const auto from = sources.find(way.from);
      work_ += kWorkOfWay;
      if (from == sources.end()) {
        found.push_back(way);
      } else if (way.groups.size() + way.copied.size() == kMostSteps || parts_.contains(way.from)) {
        found.push_back({{}, buffer});
      } else {
        for (const Source& source : from->second) {
          Way longer{way.groups, source.buffer};
          if (source.group != nullptr) {
            longer.groups.insert(longer.groups.begin(), source.group);
          } else {
            longer.copied = way.copied;
            longer.copied.push_back(way.from);
          }
          const bool back =
              std::count(longer.copied.begin(), longer.copied.end(), source.buffer) > 0;
          (back ? found : ways).push_back(std::move(longer));
        }
      }
    }
    return found;
  }

  // What a buffer has of a tensor, for each way in which it is filled; none if that is not known.
  [[nodiscard]] std::vector<Pieces> all_pieces_of(BufferIndex buffer) {
    const auto own = states_.find(buffer);
    if (own != states_.end()) return {pieces_of(*own->second)};
    std::vector<Pieces> all;
    for (const Way& way : ways_to(buffer, gathers_)) {
      std::set<BufferIndex> from{way.from};
      const auto update = updates_.find(way.from);
      if (update != updates_.end() && !states_.contains(way.from)) from = update->second;
      for (const BufferIndex one : from) {
        const auto state = states_.find(one);
        if (state == states_.end()) {
          all.push_back({1, {}, false});
          continue;
        }
        all.push_back(pieces_of(*state->second));
        for (const Group* group : way.groups) {
          all.back().known = all.back().known && join(all.back(), *group);
        }
      }
    }
    return all;
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
  void each_member(const Group& group, const Visit& visit) {
    work_ += schedule_.ranks;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t first = group.first.at(rank);
      visit(index(rank), index(first), static_cast<std::uint64_t>((rank - first) / group.stride));
    }
  }

  // Replaces pieces by what a gather joins; false if they do not follow each other.
  bool join(Pieces& pieces, const Group& group) {
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
  void divide(Sum& sum, const Group& group) {
    sum.pieces.shards = std::min(sum.pieces.shards * group.size, 2 * schedule_.ranks);
    add_up(sum.terms, group);
    OnRanks blocks(ranks_);
    OnRanks& pieces = sum.pieces.piece;
    each_member(group, [&](std::size_t rank, std::size_t first, std::uint64_t member) {
      sum.fits = sum.fits && pieces[rank] == pieces[first];
      blocks[rank] = pieces[rank] * static_cast<std::uint64_t>(group.size) + member;
    });
    pieces.swap(blocks);
  }

  void add_up(OnRanks& terms, const Group& group) {
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
  static constexpr std::int64_t kWorkOfWay = 256;
  static constexpr std::int64_t kMostWork = std::int64_t{1} << 29;  // some seconds

  const Schedule& schedule_;
  Findings& findings_;
  std::size_t ranks_;
  std::int64_t work_ = 0;
  std::map<BufferIndex, const State*> states_;  // the first entry of each buffer
  Sources gathers_, sums_, totals_;
  std::set<BufferIndex> passed_on_;  // by another gather
  std::set<BufferIndex> parts_;      // filled in parts, or added to
  std::set<BufferIndex> added_;      // no state, and added to
  std::set<BufferIndex> goes_home_;  // copied to a state
  // From pieces of parameters to their gradients.
  std::map<BufferIndex, std::set<BufferIndex>> updates_;
  const Block* block_ = nullptr;
  const Op* op_ = nullptr;
};

}  // namespace

void check_sharing(const Schedule& schedule, Findings& findings) {
  if (schedule.ranks > 1) Sharing(schedule, findings).check();
}

}  // namespace fpdt
