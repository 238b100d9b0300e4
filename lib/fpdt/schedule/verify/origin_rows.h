// The contents of rows: which tokens, which heads of them, and which parts of a sum over attention
// tiles. Internal to the verifier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fpdt/schedule/verify/rank_values.h"

namespace fpdt {

// Consecutive rows that hold consecutive tokens.
struct OriginRun {
  std::int64_t rows = 0;
  bool known = false;       // false: nothing is said about these rows
  RankValue token{};        // of the first row; of all replicas (see OriginRules)
  RankValue part{};         // of the heads, or of the columns
  std::int32_t tiles = -1;  // which are summed: tiles (OriginTiles), terms (OriginCuts); -1: none
  RankValue sum{};          // of the numbers of the tiles or terms that it has received

  auto operator<=>(const OriginRun&) const = default;
};
using OriginRuns = std::vector<OriginRun>;

inline OriginRuns unknown_rows(std::int64_t rows) { return {OriginRun{.rows = rows}}; }

inline std::int64_t count_rows(const OriginRuns& runs) {
  std::int64_t rows = 0;
  for (const OriginRun& run : runs) rows += run.rows;
  return rows;
}

// Appends a run, as part of the last one where it continues it.
inline void append(OriginRuns& runs, const OriginRun& run) {
  if (!runs.empty() && run.known == runs.back().known) {
    OriginRun longer = runs.back();
    longer.rows = run.rows;
    if (run.known) longer.token = longer.token.plus(runs.back().rows);
    if (longer == run) {
      runs.back().rows += run.rows;
      return;
    }
  }
  runs.push_back(run);
}

// The run from row `first` of it on.
inline OriginRun slice(OriginRun run, std::int64_t first, std::int64_t rows) {
  run.rows = rows;
  if (run.known) run.token = run.token.plus(first);
  return run;
}

inline OriginRuns slice(const OriginRuns& runs, std::int64_t first, std::int64_t rows) {
  OriginRuns part;
  std::int64_t at = 0;
  for (const OriginRun& run : runs) {
    const std::int64_t begin = std::max(first, at);
    const std::int64_t end = std::min(first + rows, at + run.rows);
    if (begin < end) append(part, slice(run, begin - at, end - begin));
    at += run.rows;
  }
  return part;
}

// Calls f(row, runs) for the longest stretches of rows in which every list has one run; runs are
// cut to the stretch. Precondition: the lists have equally many rows.
template <class F>
void each_stretch(const std::vector<OriginRuns>& lists, F&& f) {
  std::vector<std::size_t> run(lists.size(), 0);
  std::vector<std::int64_t> within(lists.size(), 0);
  std::vector<OriginRun> cut(lists.size());
  const std::int64_t rows = count_rows(lists.front());
  for (std::int64_t row = 0; row < rows;) {
    std::int64_t length = rows - row;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (within[i] == lists[i][run[i]].rows) {
        ++run[i];
        within[i] = 0;
      }
      length = std::min(length, lists[i][run[i]].rows - within[i]);
    }
    for (std::size_t i = 0; i < lists.size(); ++i) {
      cut[i] = slice(lists[i][run[i]], within[i], length);
      within[i] += length;
    }
    f(row, cut);
    row += length;
  }
}

// Numbers lists of runs, equal ones alike. Number 0 is one of unknown rows, of any length.
class OriginPool {
 public:
  OriginPool() : lists_(1) {}

  std::int32_t number(OriginRuns runs) {
    if (runs.size() == 1 && !runs[0].known) return 0;
    std::uint64_t hash = runs.size();
    for (const OriginRun& run : runs) {
      for (const std::uint64_t one :
           {static_cast<std::uint64_t>(run.rows), run.token.offset, run.sum.offset, run.sum.scale,
            static_cast<std::uint64_t>(run.token.base)}) {
        hash = (hash ^ one) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29U;
      }
    }
    const auto [begin, end] = numbers_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      if (lists_[static_cast<std::size_t>(at->second)] == runs) return at->second;
    }
    const auto fresh = static_cast<std::int32_t>(lists_.size());
    lists_.push_back(std::move(runs));
    numbers_.emplace(hash, fresh);
    return fresh;
  }

  [[nodiscard]] OriginRuns list(std::int32_t number, std::int64_t rows) const {
    return number == 0 ? unknown_rows(rows) : lists_[static_cast<std::size_t>(number)];
  }

 private:
  std::vector<OriginRuns> lists_;
  std::unordered_multimap<std::uint64_t, std::int32_t> numbers_;
};

}  // namespace fpdt
