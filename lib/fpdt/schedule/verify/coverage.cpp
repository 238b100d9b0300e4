// S5xx: every (query, key) pair exactly once per pass and head, those of the band where attention
// has a window; every gradient receives every row once. An op's `Covers` says which of the two
// applies.
//
// The check is static, one per block: every call of a block repeats it whole. Tiles whose positions
// are equal on all ranks cover the triangle on each of them, with the heads of that rank. Where a
// position depends on the rank, the tiles of the ranks of a replica cover it together.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "fpdt/schedule/verify/coverage_gradients.h"
#include "fpdt/schedule/verify/origin_cuts.h"
#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// Counts pairs of positions. A tile ends below 2^31 (S205), so one tile cannot wrap. A sum wraps
// only if tiles overlap, which is a finding of its own.
using Area = std::uint64_t;

// Most tiles of all ranks together that are checked rank by rank.
constexpr std::int64_t kMostTilesOfRanks = std::int64_t{1} << 20;
// Most ranks that all blocks together look at to find who shares what: a second.
constexpr std::int64_t kMostRanksSeen = std::int64_t{1} << 22;

struct Tile {
  std::int64_t q_first, q_rows, k_first, k_rows;
  const Op* op;
};

// The same for all ranks.
struct TileOfRanks {
  RankExpression q_first, k_first;
  std::int64_t q_rows, k_rows;
  std::int64_t heads;
  RankExpression head_first;
  std::int64_t window;
  const Op* op;

  [[nodiscard]] bool moves() const { return !is_constant(q_first) || !is_constant(k_first); }
  [[nodiscard]] Tile on(std::int64_t rank) const {
    return {q_first.at(rank), q_rows, k_first.at(rank), k_rows, op};
  }
};

Area triangle(std::int64_t n) {  // 1 + 2 + ... + n
  const auto count = static_cast<Area>(std::max<std::int64_t>(n, 0));
  return count * (count + 1) / 2;
}

// Pairs (q, k) of the tile with k <= q.
Area causal_pairs(const Tile& tile) {
  // Query q sees keys 0 to q. The pairs are the sum over the queries of min(q + 1 - k_first,
  // k_rows), where negative terms count 0.
  const std::int64_t low =
      tile.q_first - tile.k_first;  // keys of the tile seen by the query before the first
  const std::int64_t high = low + tile.q_rows;  // keys seen by the last query
  const auto sum_to = [&](std::int64_t n) {     // sum of clamp(i, 0, k_rows) for i = 1..n
    if (n <= tile.k_rows) return triangle(n);
    return triangle(tile.k_rows) +
           static_cast<Area>(n - tile.k_rows) * static_cast<Area>(tile.k_rows);
  };
  return sum_to(high) - sum_to(low);
}

// Those of a window: not the pairs that queries so many tokens earlier have.
Area band_pairs(const Tile& tile, std::int64_t window) {
  if (window == 0) return causal_pairs(tile);
  Tile older = tile;
  older.q_first -= window;
  return causal_pairs(tile) - causal_pairs(older);
}

class Coverage {
 public:
  // `seen`: ranks that were looked at so far.
  Coverage(const Schedule& schedule, const Block& block, const CutsOfBuffers& cuts,
           Findings& findings, std::int64_t& seen)
      : schedule_(schedule),
        block_(block),
        cuts_(cuts),
        findings_(findings),
        seen_(seen),
        gradients_(schedule, block, cuts) {}

  void check() {
    for (const Op& op : block_.ops) {
      std::visit([&](const auto& body) { collect(body, op); }, op.body);
    }
    for (const auto& [key, tiles] : tiles_) {
      if (!check_same_window(tiles)) continue;
      if (const auto sinks = sinks_.find(key.first); sinks != sinks_.end()) {
        check_sinks(tiles, sinks->second);
      }
      const bool same_heads = check_same_heads(tiles);
      if (std::none_of(tiles.begin(), tiles.end(), [](const auto& tile) { return tile.moves(); })) {
        std::vector<Tile> on_each;
        for (const TileOfRanks& tile : tiles) on_each.push_back(tile.on(0));
        check_disjoint(on_each);
        check_area(on_each, end_of(on_each));
        if (same_heads) check_heads(tiles[0]);
      } else if (same_heads && check_shares(tiles) && !are_whole_rings(tiles)) {
        check_ranks(tiles);
      }
    }
    gradients_.check(findings_);
  }

 private:
  template <class Body>
  void collect(const Body& body, const Op& op) {
    if constexpr (Body::kTraits.covers == Covers::rows) {
      Body::fields(body, Gradients(*this, op));
    } else {
      Body::fields(body, NoGradients{});
    }
    if constexpr (Body::kTraits.covers == Covers::pairs) {
      tiles_[{body.pass, op.body.index()}].push_back({body.q_first, body.k_first, body.q_rows,
                                                      body.k_rows, body.heads, body.head_first,
                                                      body.window, &op});
    }
    if constexpr (std::is_same_v<Body, AttentionSink>) sinks_[body.pass].push_back(&op);
  }

  struct Gradients : FieldVisitor<Gradients> {
    Gradients(Coverage& to, const Op& of) : coverage(to), op(of) {}
    Coverage& coverage;
    const Op& op;

    void read(std::string_view, const Operand&) {}
    void target(std::string_view, const Target&) {}
    void gradient(std::string_view, const Target& target, std::int64_t first, std::int64_t rows) {
      if (target.present() && first >= 0) {
        coverage.gradients_.add(target.operand, {first, rows, &op});
      }
    }
  };
  // Does not compile for an op that has a gradient but whose `Covers` is not rows.
  struct NoGradients : FieldVisitor<NoGradients> {
    void read(std::string_view, const Operand&) {}
    void target(std::string_view, const Target&) {}
    void gradient(std::string_view, const Target&, std::int64_t, std::int64_t) = delete;
  };

  // Sweeps over queries: the tiles that share a query must hold disjoint ranges of keys.
  void check_disjoint(const std::vector<Tile>& tiles) {
    struct Event {
      std::int64_t q;
      bool begins;
      const Tile* tile;
    };
    std::vector<Event> events;
    for (const Tile& tile : tiles) {
      events.push_back({tile.q_first, true, &tile});
      events.push_back({tile.q_first + tile.q_rows, false, &tile});
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::pair(a.q, a.begins) < std::pair(b.q, b.begins);
    });
    std::multimap<std::int64_t, const Tile*> open;  // by first key
    for (const Event& event : events) {
      const auto [begin, end] = open.equal_range(event.tile->k_first);
      if (!event.begins) {
        open.erase(
            std::find_if(begin, end, [&](const auto& one) { return one.second == event.tile; }));
        continue;
      }
      const auto at = open.emplace(event.tile->k_first, event.tile);
      if (at != open.begin()) overlap(*std::prev(at)->second, *event.tile);
      if (std::next(at) != open.end()) overlap(*event.tile, *std::next(at)->second);
    }
  }

  void overlap(const Tile& left, const Tile& right) {
    if (left.k_first + left.k_rows <= right.k_first) return;
    findings_.add(
        "S501", place_of(block_, *right.op),
        fmt::format("the attention tile overlaps that of {}", place_of(block_, *left.op)));
  }

  static std::int64_t end_of(const std::vector<Tile>& tiles) {
    std::int64_t end = 0;
    for (const Tile& tile : tiles) end = std::max(end, tile.q_first + tile.q_rows);
    return end;
  }

  void check_area(const std::vector<Tile>& tiles, std::int64_t end) {
    Area covered = 0;
    for (const Tile& tile : tiles) covered += band_pairs(tile, window_);
    const Area whole = triangle(end) - (window_ > 0 ? triangle(end - window_) : 0);
    if (covered == whole) return;
    findings_.add(
        "S502", "blocks." + block_.name,
        fmt::format("attention tiles cover {} of the {} pairs of {} tokens", covered, whole, end));
  }

  bool look_at_ranks() {
    seen_ += schedule_.ranks;
    if (seen_ <= kMostRanksSeen) return true;
    findings_.add("S103", "blocks." + block_.name,
                  fmt::format("attention tiles of {} ranks differ in more ways than are checked",
                              schedule_.ranks));
    return false;
  }

  // Collects the ranks of each replica that have the same heads, who share out the triangle.
  bool check_shares(const std::vector<TileOfRanks>& tiles) {
    if (!look_at_ranks()) return false;
    shares_.clear();
    each_once_.clear();
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t replica =
          schedule_.feeds.empty() ? 0 : schedule_.feeds[0].replica.at(rank);
      shares_[{replica, tiles[0].head_first.at(rank)}].push_back(rank);
    }
    std::map<std::int64_t, std::int64_t> heads;  // by replica: where the next ones begin
    const auto uneven = [&](const std::string& message) {
      findings_.add("S503", place_of(block_, *tiles[0].op), message);
      return false;
    };
    for (const auto& [key, ranks] : shares_) {
      std::int64_t& next = heads[key.first];
      if (key.second != next) {
        return uneven(
            fmt::format("heads {} of replica {} begin at {}", next, key.first, key.second));
      }
      next += tiles[0].heads;
    }
    for (const auto& [replica, count] : heads) {
      if (count == heads.begin()->second) continue;
      return uneven(fmt::format("replica {} has {} heads", replica, count));
    }
    return true;
  }

  // Proves the triangle once for all ranks of rings, if it can. At their hops, tiles meet each run
  // of keys once, whatever the rank; and of the ranks of a share, each has another run of queries.
  // So the tiles of all hops and ranks together are rectangles.
  bool are_whole_rings(const std::vector<TileOfRanks>& tiles) {
    std::vector<Tile> whole;
    for (const TileOfRanks& tile : over_hops(tiles)) {
      if (!is_constant(tile.k_first) || !is_each_run(tile.q_first, tile.q_rows)) return false;
      const auto [first, rows] = all_runs(tile.q_first, tile.q_rows);
      whole.push_back({first, rows, tile.k_first.a, tile.k_rows, tile.op});
    }
    Findings none;
    Coverage proof(schedule_, block_, cuts_, none, seen_);
    proof.window_ = window_;
    proof.check_disjoint(whole);
    proof.check_area(whole, end_of(whole));
    return none.empty();
  }

  // Joins the tiles that meet the keys of all members of a ring, one at each hop.
  static std::vector<TileOfRanks> over_hops(const std::vector<TileOfRanks>& tiles) {
    // By all but the shift: queries, and runs of keys.
    std::map<std::array<std::int64_t, 14>, std::vector<const TileOfRanks*>> rings;
    for (const TileOfRanks& tile : tiles) {
      const auto& [q, k] = std::tie(tile.q_first, tile.k_first);
      rings[{q.a, q.first.b, q.first.s, q.first.m, q.first.n, q.second.b, tile.q_rows, k.a,
             k.first.b, k.first.m, k.first.n, k.second.b, tile.k_rows, is_constant(k)}]
          .push_back(&tile);
    }
    std::vector<TileOfRanks> joined;
    for (const auto& [key, hops] : rings) {
      const TileOfRanks& one = *hops.front();
      const RankTerm& term = one.k_first.first;
      std::set<std::int64_t> shifts;
      for (const TileOfRanks* tile : hops) {
        const std::int64_t s = tile->k_first.first.s;
        if (s % term.m == 0) shifts.insert(s / term.m % term.n);
      }
      const bool all = std::ssize(hops) == term.n && std::ssize(shifts) == term.n;
      if (is_constant(one.k_first) || !all || !is_run(one.k_first, one.k_rows)) {
        for (const TileOfRanks* tile : hops) joined.push_back(*tile);
        continue;
      }
      const auto [first, rows] = all_runs(one.k_first, one.k_rows);
      joined.push_back(one);
      joined.back().k_first = first;
      joined.back().k_rows = rows;
    }
    return joined;
  }

  // Whether a rank's rows are one of several runs, side by side.
  static bool is_run(const RankExpression& first, std::int64_t rows) {
    return is_constant(first.second) && std::abs(first.first.b) == rows;
  }
  // All the runs: where they begin, and their rows.
  static std::pair<std::int64_t, std::int64_t> all_runs(const RankExpression& first,
                                                        std::int64_t rows) {
    const RankTerm& term = first.first;
    return {first.a + std::min<std::int64_t>(0, term.b * (term.n - 1)), term.n * rows};
  }
  // Whether the ranks of each share have each run once.
  bool is_each_run(const RankExpression& first, std::int64_t rows) {
    if (!is_run(first, rows)) return false;
    const RankTerm& term = first.first;
    const auto [known, fresh] = each_once_.try_emplace({term.s, term.m, term.n}, true);
    if (fresh) known->second = look_at_ranks();
    for (auto share = shares_.begin(); fresh && known->second && share != shares_.end(); ++share) {
      std::set<std::int64_t> runs;
      for (const std::int64_t rank : share->second) runs.insert((rank + term.s) / term.m % term.n);
      known->second = std::ssize(runs) == term.n && std::ssize(share->second) == term.n;
    }
    return known->second;
  }

  // Rank by rank. What no query of a tile sees counts nothing.
  void check_ranks(const std::vector<TileOfRanks>& tiles) {
    if (std::ssize(tiles) > kMostTilesOfRanks / schedule_.ranks) {
      findings_.add("S103", "blocks." + block_.name,
                    fmt::format("{} attention tiles on {} ranks differ from rank to rank, expected "
                                "at most {} in all",
                                tiles.size(), schedule_.ranks, kMostTilesOfRanks));
      return;
    }
    std::int64_t end = 0;
    for (const TileOfRanks& tile : tiles) {
      end = std::max(end, bounds_over(tile.q_first, schedule_.ranks).greatest + tile.q_rows);
    }
    for (const auto& [key, ranks] : shares_) {
      std::vector<Tile> share;
      for (const std::int64_t rank : ranks) {
        for (const TileOfRanks& of_ranks : tiles) {
          Tile tile = of_ranks.on(rank);
          tile.k_rows = std::min(tile.k_rows, tile.q_first + tile.q_rows - tile.k_first);
          if (tile.k_rows > 0) share.push_back(tile);
        }
      }
      check_disjoint(share);
      check_area(share, end);
    }
  }

  // All tiles of a pass have the same window.
  bool check_same_window(const std::vector<TileOfRanks>& tiles) {
    window_ = tiles[0].window;
    for (const TileOfRanks& tile : tiles) {
      if (tile.window == window_) continue;
      findings_.add(
          "S507", place_of(block_, *tile.op),
          fmt::format("the window is {}, and that of the other tiles {}", tile.window, window_));
      return false;
    }
    return true;
  }

  // Where a pass has sinks, the queries of each of its tiles have one, of the same heads.
  void check_sinks(const std::vector<TileOfRanks>& tiles, const std::vector<const Op*>& sinks) {
    using Queries =
        std::tuple<RankExpression, std::int64_t, std::int64_t, RankExpression>;  // rows and heads
    std::map<Queries, std::int64_t> found;
    for (const TileOfRanks& tile : tiles) {
      found[{tile.q_first, tile.q_rows, tile.heads, tile.head_first}] = 0;
    }
    for (const Op* op : sinks) {
      const auto& sink = std::get<AttentionSink>(op->body);
      const auto of = found.find({sink.q_first, sink.q_rows, sink.heads, sink.head_first});
      if (of != found.end() && ++of->second == 1) continue;
      findings_.add("S508", place_of(block_, *op),
                    of == found.end() ? "no tile of the pass has its queries and heads"
                                      : "its queries have another sink");
    }
    for (const TileOfRanks& tile : tiles) {
      if (found.at({tile.q_first, tile.q_rows, tile.heads, tile.head_first}) > 0) continue;
      findings_.add("S508", place_of(block_, *tile.op), "its queries have no sink, as others have");
    }
  }

  // All tiles of a pass have the same heads.
  bool check_same_heads(const std::vector<TileOfRanks>& tiles) {
    for (const TileOfRanks& tile : tiles) {
      if (tile.heads == tiles[0].heads && tile.head_first == tiles[0].head_first) continue;
      findings_.add("S503", place_of(block_, *tile.op),
                    "heads differ from those of the other tiles");
      return false;
    }
    return true;
  }

  // Head ranges of the ranks must be 0, h, 2h, ..., each held by equally many ranks.
  void check_heads(const TileOfRanks& tile) {
    // Counts ranks that hold the heads from i * heads on.
    const std::int64_t heads = tile.heads;
    std::vector<std::int64_t> holders(index(schedule_.ranks), 0);
    std::int64_t sets = 0;
    for (std::int64_t rank = 0; rank < schedule_.ranks; ++rank) {
      const std::int64_t first = tile.head_first.at(rank);
      const bool fits = first >= 0 && first % heads == 0 && first / heads < schedule_.ranks;
      if (!fits) return uneven(tile, first, 1);
      sets = std::max(sets, first / heads + 1);
      ++holders[index(first / heads)];
    }
    for (std::int64_t i = 0; i < sets; ++i) {
      if (holders[index(i)] != holders[0]) return uneven(tile, i * heads, holders[index(i)]);
    }
  }

  void uneven(const TileOfRanks& tile, std::int64_t first, std::int64_t ranks) {
    findings_.add(
        "S503", place_of(block_, *tile.op),
        fmt::format("heads {}:{} are held by {} of {} ranks; each {} heads from 0 must be "
                    "held by equally many",
                    first, first + tile.heads, ranks, schedule_.ranks, tile.heads));
  }

  const Schedule& schedule_;
  const Block& block_;
  const CutsOfBuffers& cuts_;
  Findings& findings_;
  std::int64_t& seen_;
  std::map<std::pair<Pass, std::size_t>, std::vector<TileOfRanks>>
      tiles_;  // by pass and kind of op
  std::map<Pass, std::vector<const Op*>> sinks_;
  std::int64_t window_ = 0;  // of the tiles that are checked
  // Of the tiles that are checked: ranks by replica and first head, and the terms of which each
  // share has every value once.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> shares_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, bool> each_once_;
  GradientCoverage gradients_;
};

}  // namespace

void check_coverage(const Schedule& schedule, Findings& findings) {
  std::int64_t seen = 0;
  const CutsOfBuffers cuts(schedule);
  for (const Block& block : schedule.blocks) {
    if (findings.full()) return;
    Coverage(schedule, block, cuts, findings, seen).check();
  }
}

}  // namespace fpdt
