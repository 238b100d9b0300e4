// Prints diagnostics.
#include "fpdt/base/error.h"

#include <fmt/format.h>

namespace fpdt {

std::string format_diagnostics(const std::vector<Diagnostic>& findings, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < findings.size() && i < limit; ++i) {
    const Diagnostic& finding = findings[i];
    text += fmt::format("{}: {} [{}]\n", finding.where, finding.message, finding.code);
  }
  if (findings.size() > limit) text += fmt::format("... and {} more\n", findings.size() - limit);
  return text;
}

}  // namespace fpdt
