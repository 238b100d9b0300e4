// The rows of one version as pieces with the same last access. Internal to the verifier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace fpdt {

using Position = std::int32_t;  // of an op on its lane within the step; -1: the start of the step

// Rows [first, end) of a version with one last writer, and whether they were read since, or used as
// scratch, which leaves nothing to read.
struct Piece {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int32_t lane = 0;
  Position position = -1;
  bool read = false;
  bool scratch = false;
};
using Pieces = std::vector<Piece>;  // disjoint, by row

// The index of the first piece that ends after `row`.
inline std::size_t piece_at(const Pieces& pieces, std::int64_t row) {
  const auto found =
      std::upper_bound(pieces.begin(), pieces.end(), row,
                       [](std::int64_t wanted, const Piece& piece) { return wanted < piece.end; });
  return static_cast<std::size_t>(found - pieces.begin());
}

// Count of rows, from the first on, that have contents.
inline std::int64_t written_rows(const Pieces& pieces) {
  std::int64_t reached = 0;
  for (const Piece& piece : pieces) {
    if (piece.first != reached || piece.scratch) break;
    reached = piece.end;
  }
  return reached;
}

// Splits pieces so that whole pieces make up [first, end); returns the index of the first and their
// count.
inline std::pair<std::size_t, std::size_t> isolate(Pieces& pieces, std::int64_t first,
                                                   std::int64_t end) {
  const auto cut = [&pieces](std::int64_t row) {
    const std::size_t i = piece_at(pieces, row);
    if (i == pieces.size() || pieces[i].first >= row) return;
    Piece right = pieces[i];
    right.first = pieces[i].end = row;
    pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1, right);
  };
  cut(first);
  cut(end);
  const std::size_t begin = piece_at(pieces, first);
  std::size_t count = 0;
  while (begin + count < pieces.size() && pieces[begin + count].first < end) ++count;
  return {begin, count};
}

// Joins pieces that were just given the same last access.
inline void merge(Pieces& pieces, std::size_t begin, std::size_t count) {
  if (count < 2) return;
  pieces[begin].end = pieces[begin + count - 1].end;
  const auto at = pieces.begin() + static_cast<std::ptrdiff_t>(begin);
  pieces.erase(at + 1, at + static_cast<std::ptrdiff_t>(count));
}

inline void mark_read(Pieces& pieces, std::int64_t first, std::int64_t end) {
  if (pieces.size() == 1 && pieces[0].first == first && pieces[0].end == end) {
    pieces[0].read = true;
    return;
  }
  const auto [begin, count] = isolate(pieces, first, end);
  for (std::size_t i = begin; i < begin + count; ++i) pieces[i].read = true;
}

}  // namespace fpdt
