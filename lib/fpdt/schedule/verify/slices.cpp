// S510: a product of experts that is made slice by slice has each expert once.
//
// The first slice writes, and the others add, in order of the experts. So the pairs of an expert
// are zeros until its slice, and what is read afterwards is whole.
#include <map>

#include <fmt/format.h>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// The slices of one product so far.
struct Made {
  std::int64_t end = 0;
  bool whole = true;
};

void check_block(const Block& block, Findings& findings) {
  std::map<BufferIndex, Made> products;
  for (const Op& op : block.ops) {
    const auto* const grouped = std::get_if<GroupedMatmul>(&op.body);
    if (grouped != nullptr && grouped->slice.count > 0) {
      Made& made = products[grouped->out.operand.buffer];
      const std::int64_t begin = made.whole ? 0 : made.end;
      if (grouped->slice.first != begin || grouped->out.accumulate == made.whole) {
        findings.add(
            "S510", place_of(block, op),
            fmt::format("makes experts from {} on, expected those from {} on{}",
                        grouped->slice.first, begin, made.whole ? ", and nothing to add to" : ""));
      }
      made.end = grouped->slice.first + grouped->slice.count;
      made.whole = made.end == grouped->experts;
      continue;
    }
    for (const Use& use : operands(op.body)) {
      const auto found = products.find(use.operand.buffer);
      if (found == products.end() || found->second.whole) continue;
      findings.add("S510", place_of(block, op),
                   fmt::format("uses a product of which experts from {} on are not made",
                               found->second.end));
    }
  }
  for (const auto& [buffer, made] : products) {
    if (made.whole) continue;
    findings.add(
        "S510", block.name,
        fmt::format("leaves a product of which experts from {} on are not made", made.end));
  }
}

}  // namespace

void check_slices(const Schedule& schedule, Findings& findings) {
  for (const Block& block : schedule.blocks) check_block(block, findings);
}

}  // namespace fpdt
