// The parts of the verifier, in the order in which they run. Internal to fpdt/schedule.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/schedule/verify.h"

namespace fpdt {

// Collects findings up to kMostFindings, each code once per place.
class Findings {
 public:
  void add(std::string_view code, const std::string& where, std::string message) {
    if (full() || !seen_.emplace(code, where).second) return;
    list_.push_back({std::string(code), where, std::move(message)});
  }
  [[nodiscard]] bool full() const { return list_.size() >= kMostFindings; }
  [[nodiscard]] bool empty() const { return list_.empty(); }
  [[nodiscard]] bool any(std::string_view code_prefix) const {
    for (const Diagnostic& one : list_) {
      if (std::string_view(one.code).substr(0, code_prefix.size()) == code_prefix) return true;
    }
    return false;
  }
  [[nodiscard]] const std::vector<Diagnostic>& list() const { return list_; }

 private:
  std::vector<Diagnostic> list_;
  std::set<std::pair<std::string, std::string>> seen_;
};

// "forward.attn.1.0"
inline std::string place_of(const Block& block, const Op& op) { return block.name + "." + op.name; }

// S1xx. No other check may run while one of these stands.
void check_structure(const Schedule& schedule, Findings& findings);
// S2xx. After an S201 the order check must not run, since it relies on rows in range.
void check_shapes(const Schedule& schedule, Findings& findings);
// S606 and S607, static.
void check_feeds(const Schedule& schedule, Findings& findings);
// The rest of S6xx, static.
void check_roles(const Schedule& schedule, Findings& findings);
// S401 to S403, static.
void check_placement(const Schedule& schedule, Findings& findings);
// S3xx, S404 to S407 and S604, over the expansion.
void check_order(const Schedule& schedule, Findings& findings);
// S5xx. Must not run after an S205, since tiles must have rows.
void check_coverage(const Schedule& schedule, Findings& findings);
// S509, over the calls.
void check_loads(const Schedule& schedule, Findings& findings);
// S510, static.
void check_slices(const Schedule& schedule, Findings& findings);
// S705, static. Must not run after any finding.
void check_sharing(const Schedule& schedule, Findings& findings);
// The rest of S7xx, over the calls. Must not run after any finding of the parts before S7xx, since
// it relies on them.
void check_origins(const Schedule& schedule, Findings& findings);

}  // namespace fpdt
