// Sorts rows by the gradient that they end in.
#include "fpdt/schedule/verify/coverage_gradients.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace fpdt {

CutsOfBuffers::CutsOfBuffers(const Schedule& schedule) : of_buffers(cuts_of_buffers(schedule)) {
  for (const TensorCut* cut : of_buffers) {
    if (cut != nullptr) ways = std::max(ways, cut->ways);
  }
}

GradientCoverage::Key GradientCoverage::key_of(const Operand& gradient, std::int64_t first,
                                               std::int64_t rows) {
  const Version& v = gradient.version;
  return {gradient.buffer, v.relative, v.offset, v.layer, v.micro_batch,
          v.segment,       v.place,    first,    rows};
}

void GradientCoverage::add(const Operand& gradient, const Rows& rows) {
  gradients_[key_of(gradient, gradient.row_first, gradient.rows)].push_back(rows);
}

// Sums of a few rows may be added to one that has them all: then that is what covers them.
void GradientCoverage::add_up_sums(Findings& findings) {
  std::set<BufferIndex> buffers;
  for (const auto& [key, chunks] : gradients_) buffers.insert(std::get<0>(key));
  std::vector<std::pair<const Operand*, const Operand*>> added;
  std::set<Key> sent;
  for (const Op& op : block_.ops) {
    const auto* const reduce = std::get_if<ReduceScatter>(&op.body);
    if (reduce == nullptr) continue;
    const std::size_t pairs = std::min(reduce->send.size(), reduce->receive.size());
    for (std::size_t i = 0; i < pairs; ++i) {
      added.emplace_back(&reduce->send[i], &reduce->receive[i].operand);
      const bool sums = buffers.contains(reduce->send[i].buffer);
      if (!sums || sent.insert(key_of(reduce->send[i], 0, 0)).second) continue;
      findings.add(
          "S504", place_of(block_, op),
          fmt::format("adds {} up twice", schedule_.buffers[index(reduce->send[i].buffer)].name));
    }
  }
  std::map<Key, std::vector<Rows>> sums;
  for (auto& [key, chunks] : gradients_) {
    const std::int64_t first = std::get<7>(key), rows = std::get<8>(key);
    Key whole = key;
    for (const auto& [from, to] : added) {
      if (key_of(*from, first, rows) == whole) whole = key_of(*to, first, rows);
    }
    std::vector<Rows>& all = sums[whole];
    all.insert(all.end(), chunks.begin(), chunks.end());
  }
  gradients_ = std::move(sums);
}

// Ranks that share products have the rows of all of them, but only a part of the columns. So has
// the sum over heads, though the weight of their norm is whole.
std::int64_t GradientCoverage::sharers_of(BufferIndex gradient, const Op& op) const {
  if (std::holds_alternative<JoinHeads>(op.body)) return cuts_.ways;
  const TensorCut* cut = cuts_.of_buffers[index(gradient)];
  return cut == nullptr ? 1 : cuts_.ways;
}

void GradientCoverage::check(Findings& findings) {
  add_up_sums(findings);
  std::int64_t common_end = -1;
  for (auto& [key, chunks] : gradients_) {
    std::sort(chunks.begin(), chunks.end(),
              [](const Rows& a, const Rows& b) { return a.first < b.first; });
    const std::string& name = schedule_.buffers[index(std::get<0>(key))].name;
    const std::int64_t sharers = sharers_of(std::get<0>(key), *chunks.back().op);
    std::int64_t end = 0;
    for (const Rows& chunk : chunks) {
      if (chunk.first != end) {
        findings.add(chunk.first < end ? "S504" : "S505", place_of(block_, *chunk.op),
                     fmt::format("the gradient {} receives rows {}:{} after rows 0:{}", name,
                                 chunk.first, chunk.first + chunk.rows, end));
      }
      end = std::max(end, chunk.first + chunk.rows);
    }
    if (common_end < 0 && end % sharers == 0) common_end = end / sharers;
    if (end != common_end * sharers) {
      findings.add("S506", place_of(block_, *chunks.back().op),
                   fmt::format("the gradient {} ends at row {}, others at {}", name, end,
                               common_end * sharers));
    }
  }
}

}  // namespace fpdt
