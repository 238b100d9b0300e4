// Sums over the tiles of one class of ranks after the other.
//
// Around a ring, the tiles of a chunk of queries meet the keys of each place once. Ranks meet them
// on different hops, but the sums are equal. So the tiles of all hops are one row.
#include "fpdt/sim/imbalance.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <variant>

#include "fpdt/schedule/op.h"

namespace fpdt {
namespace {

using Flops = std::array<double, kWorks>;

// Ranks 0, step, 2 step, ... below `end` stand for all: the positions on other ranks are theirs.
struct RankClasses {
  std::int64_t ranks;
  std::int64_t step = 0;
  std::int64_t end = 1;

  void meet(const RankExpression& e) {
    for (const RankTerm& term : {e.first, e.second}) {
      if (is_constant(term)) continue;
      step = std::gcd(step, std::gcd(term.s, term.m));
      // A term that is written by hand may have no period, or one that does not divide the ranks.
      const bool repeats = term.m <= ranks && term.n <= ranks / term.m;
      end = repeats ? std::lcm(end, term.m * term.n) : ranks;
      if (ranks % end != 0) end = ranks;
    }
    if (end == ranks && ranks % std::max<std::int64_t>(step, 1) != 0) step = 1;
  }
};

// Bounds of a position over all ranks, which need not be reached.
RankBounds outer_bounds(const RankExpression& e, std::int64_t ranks) {
  RankBounds bounds{e.a, e.a};
  for (const RankTerm& term : {e.first, e.second}) {
    const std::int64_t last = term.b * std::min(term.n - 1, (ranks - 1 + term.s) / term.m);
    (last < 0 ? bounds.least : bounds.greatest) += last;
  }
  return bounds;
}

// Whether every rank sees all of the keys, or none does.
template <class Tile>
bool equal_on_ranks(const Tile& tile, std::int64_t ranks) {
  const RankBounds q = outer_bounds(tile.q_first, ranks);
  const RankBounds k = outer_bounds(tile.k_first, ranks);
  const bool inside = tile.window == 0 || q.greatest + tile.q_rows <= k.least + tile.window;
  return (k.greatest + tile.k_rows <= q.least + 1 && inside) || k.least >= q.greatest + tile.q_rows;
}

// Tiles that differ in the shift of the first term of their keys' position alone.
struct Row {
  RankExpression q_first, k_first;  // the latter with shift 0
  std::int64_t q_rows, k_rows, window;

  auto operator<=>(const Row&) const = default;
  [[nodiscard]] std::int64_t pairs(std::int64_t rank, std::int64_t k) const {
    return visible_pairs(q_first.at(rank), q_rows, k, k_rows, window);
  }
};
using FlopsByShift = std::map<std::int64_t, Flops>;  // for each pair
using Rows = std::map<Row, FlopsByShift>;

// Whether every rank meets each place of the keys once, with the same flops.
bool goes_around(const Row& row, const FlopsByShift& by_shift) {
  const RankTerm& term = row.k_first.first;
  if (!is_constant(row.k_first.second) || std::ssize(by_shift) != term.n) return false;
  std::int64_t expected = 0;
  for (const auto& [shift, flops] : by_shift) {
    if (shift != expected || flops != by_shift.begin()->second) return false;
    expected += term.m;
  }
  return true;
}

// Precondition: the row goes around.
std::int64_t pairs_around(const Row& row, std::int64_t rank) {
  const RankTerm& term = row.k_first.first;
  if (std::abs(term.b) == row.k_rows) {  // the places are adjacent
    const std::int64_t least = row.k_first.a + std::min<std::int64_t>(0, term.b * (term.n - 1));
    return visible_pairs(row.q_first.at(rank), row.q_rows, least, term.n * row.k_rows, row.window);
  }
  std::int64_t sum = 0;
  for (std::int64_t place = 0; place < term.n; ++place) {
    sum += row.pairs(rank, row.k_first.a + place * term.b);
  }
  return sum;
}

void add(Flops& sum, const Flops& flops, std::int64_t pairs) {
  for (std::size_t work = 0; work < kWorks; ++work) {
    sum[work] += flops[work] * static_cast<double>(pairs);
  }
}

Flops flops_of(const Rows& rows, const Rows& around, std::int64_t rank) {
  Flops sum{};
  for (const auto& [row, by_shift] : around) {
    add(sum, by_shift.begin()->second, pairs_around(row, rank));
  }
  for (const auto& [row, by_shift] : rows) {
    for (const auto& [shift, flops] : by_shift) {
      RankExpression k = row.k_first;
      k.first.s = shift;
      add(sum, flops, row.pairs(rank, k.at(rank)));
    }
  }
  return sum;
}

}  // namespace

Imbalance imbalance_of(const Schedule& schedule, const std::vector<std::int64_t>& calls) {
  Rows rows, around;
  RankClasses classes{schedule.ranks};
  for (std::size_t b = 0; b < schedule.blocks.size(); ++b) {
    for (const Op& op : schedule.blocks[b].ops) {
      const auto add = [&](const auto& tile, double flops, Work work) {
        if (is_constant(tile.q_first) && is_constant(tile.k_first)) return;
        if (equal_on_ranks(tile, schedule.ranks)) return;
        classes.meet(tile.q_first);
        classes.meet(tile.k_first);
        Row row{tile.q_first, tile.k_first, tile.q_rows, tile.k_rows, tile.window};
        row.k_first.first.s = 0;
        rows[row][tile.k_first.first.s][static_cast<std::size_t>(work)] +=
            flops * static_cast<double>(tile.heads * tile.head_dim * calls[b]);
      };
      if (const auto* forward = std::get_if<AttentionForward>(&op.body)) {
        add(*forward, kForwardFlops, Work::attention_forward);
      } else if (const auto* backward = std::get_if<AttentionBackward>(&op.body)) {
        add(*backward, kBackwardFlops, Work::attention_backward);
      }
    }
  }
  Imbalance found;
  if (rows.empty()) return found;
  for (auto row = rows.begin(); row != rows.end();) {
    const auto next = std::next(row);
    if (goes_around(row->first, row->second)) around.insert(rows.extract(row));
    row = next;
  }
  const auto count = static_cast<double>(classes.end / classes.step);
  Flops mean{}, most{};
  double most_flops = -1;
  for (std::int64_t rank = 0; rank < classes.end; rank += classes.step) {
    const Flops own = flops_of(rows, around, rank);
    for (std::size_t work = 0; work < kWorks; ++work) mean[work] += own[work] / count;
    const double flops = std::accumulate(own.begin(), own.end(), 0.0);
    if (flops <= most_flops) continue;
    found.heaviest = rank;
    most_flops = flops;
    most = own;
  }
  for (std::size_t work = 0; work < kWorks; ++work) found.spare[work] = most[work] - mean[work];
  return found;
}

}  // namespace fpdt
