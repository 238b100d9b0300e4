// The bounds of rank expressions.
#include "fpdt/schedule/operand.h"

namespace fpdt {
namespace {

RankBounds bounds_over(const RankTerm& term, std::int64_t ranks) {
  // (r + s) div m takes every value from `low` to `high`. Taken mod n, these values form one run,
  // or they wrap around and include both 0 and n - 1.
  const std::int64_t low = term.s / term.m;
  const std::int64_t high = (ranks - 1 + term.s) / term.m;
  const bool one_run = high - low < term.n && low % term.n <= high % term.n;
  const std::int64_t first = term.b * (one_run ? low % term.n : 0);
  const std::int64_t last = term.b * (one_run ? high % term.n : term.n - 1);
  return {std::min(first, last), std::max(first, last)};
}

}  // namespace

RankBounds bounds_over(const RankExpression& e, std::int64_t ranks) {
  if (is_constant(e)) return {e.a, e.a};
  if (is_constant(e.first) || is_constant(e.second)) {
    const RankBounds term = bounds_over(is_constant(e.first) ? e.second : e.first, ranks);
    return {e.a + term.least, e.a + term.greatest};
  }
  // The terms may reach their bounds on different ranks.
  RankBounds bounds{e.at(0), e.at(0)};
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    const std::int64_t value = e.at(rank);
    bounds = {std::min(bounds.least, value), std::max(bounds.greatest, value)};
  }
  return bounds;
}

}  // namespace fpdt
