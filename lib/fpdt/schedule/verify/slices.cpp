// S510: what is made slice by slice has each expert once.
//
// An op of a slice writes the pairs of its experts alone, so that only ops of the same slice may
// read them. A sum over the choices of rows begins with the first slice, and the others add to it
// in order of the experts; what is read afterwards is whole.
#include <algorithm>
#include <map>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "fpdt/schedule/verify/parts.h"

namespace fpdt {
namespace {

// The experts that are in a version: of pairs those of a slice, of a sum all up to an end.
struct Made {
  Version version;
  ExpertSlice slice;
  bool sum;
};

class SlicesOfBlock {
 public:
  SlicesOfBlock(const Block& block, Findings& findings) : block_(block), findings_(findings) {}

  void check() {
    for (const Op& op : block_.ops) {
      op_ = &op;
      check(op.body);
    }
    for (const auto& [buffer, versions] : made_) {
      for (const Made& one : versions) {
        if (!one.sum) continue;
        findings_.add(
            "S510", block_.name,
            fmt::format("leaves a sum of which experts from {} on are not added", one.slice.count));
      }
    }
  }

 private:
  // The experts that an op works on, of how many; an empty slice where it has none.
  struct Work {
    ExpertSlice slice;
    std::int64_t experts = 0;
  };
  static Work work_of(const Body& body) {
    return std::visit(
        [](const auto& one) -> Work {
          if constexpr (requires { ExpertSlice{one.slice}; }) return {one.slice, one.experts};
          return {};
        },
        body);
  }

  // Targets of rows, to which all experts of a row contribute.
  static bool sums_choices(const Body& body, std::string_view field) {
    return std::holds_alternative<Combine>(body) ||
           (std::holds_alternative<CombineBackward>(body) && field == "dweights");
  }
  // Targets of experts: gradients, whose rows and parts have proofs of their own (S504 to S506).
  static bool sums_pairs(const Body& body) {
    return std::holds_alternative<GroupedGradient>(body) ||
           std::holds_alternative<GroupedSum>(body);
  }

  void check(const Body& body) {
    const Work work = work_of(body);
    const ExpertSlice& slice = work.slice;
    for_each_operand(body, [&](std::string_view field, const Operand& operand, Access access) {
      if (access == Access::read) return read(operand, slice);
      if (access == Access::scratch) return;
      if (slice.count == 0) {
        if (access == Access::accumulate) read(operand, slice);
        return forget(operand);
      }
      if (sums_choices(body, field)) return add(operand, access, work);
      if (!sums_pairs(body)) write(operand, access, slice);
    });
  }

  void read(const Operand& operand, const ExpertSlice& slice) {
    const Made* const one = find(operand);
    if (one == nullptr) return;
    if (one->sum) {
      fail(fmt::format("uses a sum of which experts from {} on are not added", one->slice.count));
    } else if (one->slice != slice) {
      fail(fmt::format("uses pairs of which those of experts {} to {} alone are made",
                       one->slice.first, one->slice.first + one->slice.count - 1));
    }
  }

  // In place or anew.
  void write(const Operand& operand, Access access, const ExpertSlice& slice) {
    if (access == Access::accumulate) read(operand, slice);
    forget(operand);
    made_[operand.buffer].push_back({operand.version, slice, false});
  }

  void add(const Operand& operand, Access access, const Work& work) {
    const ExpertSlice& slice = work.slice;
    const Made* const one = find(operand);
    const std::int64_t begin = one == nullptr || !one->sum ? 0 : one->slice.count;
    if (slice.first != begin || (access == Access::write) != (begin == 0)) {
      fail(fmt::format("adds experts from {} on, expected those from {} on{}", slice.first, begin,
                       begin == 0 ? ", and nothing to add to" : ""));
    }
    forget(operand);
    const std::int64_t end = slice.first + slice.count;
    if (end < work.experts) made_[operand.buffer].push_back({operand.version, {0, end}, true});
  }

  // The last version is the likely one.
  [[nodiscard]] Made* find(const Operand& operand) {
    const auto versions = made_.find(operand.buffer);
    if (versions == made_.end()) return nullptr;
    const auto last = std::find_if(versions->second.rbegin(), versions->second.rend(),
                                   [&](const Made& one) { return one.version == operand.version; });
    return last == versions->second.rend() ? nullptr : &*last;
  }
  void forget(const Operand& operand) {
    Made* const one = find(operand);
    if (one == nullptr) return;
    std::vector<Made>& versions = made_[operand.buffer];
    versions.erase(versions.begin() + (one - versions.data()));
  }
  void fail(std::string message) { findings_.add("S510", place_of(block_, *op_), message); }

  const Block& block_;
  Findings& findings_;
  const Op* op_ = nullptr;
  std::map<BufferIndex, std::vector<Made>> made_;
};

}  // namespace

void check_slices(const Schedule& schedule, Findings& findings) {
  for (const Block& block : schedule.blocks) SlicesOfBlock(block, findings).check();
}

}  // namespace fpdt
