// Checks the names, purposes and bounds of the inputs.
#include "fpdt/train/feeds.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/schedule/roles.h"

namespace fpdt {
namespace {

// The purpose of each input. step_input holds no integers, so it has none.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kPurposes{
    {{kStepInput, ""},
     {kTokensInput, "tokens"},
     {kLabelsInput, "labels"},
     {kDocumentsInput, "documents"}}};

void check_inputs(const Schedule& schedule, std::vector<Diagnostic>& findings) {
  const std::vector<std::string_view> served = purposes_of(schedule);
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (buffer.role != Role::input) continue;
    const auto* known = std::find_if(kPurposes.begin(), kPurposes.end(),
                                     [&](const auto& one) { return one.first == buffer.name; });
    const std::string where = fmt::format("buffer {}", buffer.name);
    if (known == kPurposes.end()) {
      findings.push_back({"R105", where, "is an input that training does not fill"});
    } else if (!served[i].empty() && served[i] != known->second) {
      findings.push_back({"R105", where, fmt::format("serves as {}", served[i])});
    }
  }
}

template <class Embed>
void check_bounds(const Block& block, const std::string& name, const Embed& op, bool positions,
                  const ModelSpec& model, std::vector<Diagnostic>& findings) {
  const std::string where = fmt::format("{}.{}", block.name, name);
  const auto compare = [&](std::string_view what, std::int64_t promised, std::int64_t actual) {
    if (promised == actual) return;
    findings.push_back(
        {"R105", where,
         fmt::format("{} is {}, but model {} has {}", what, promised, model.name, actual)});
  };
  compare("vocabulary", op.vocabulary, model.vocabulary);
  if (positions) compare("position_count", op.position_count, model.learned_positions);
}

}  // namespace

void require_feeds(const Schedule& schedule, const ModelSpec& model) {
  std::vector<Diagnostic> findings;
  check_inputs(schedule, findings);
  for (const Block& block : schedule.blocks) {
    for (const Op& op : block.ops) {
      if (const auto* embed = std::get_if<Embedding>(&op.body)) {
        check_bounds(block, op.name, *embed, embed->positions.present(), model, findings);
      } else if (const auto* back = std::get_if<EmbeddingBackward>(&op.body)) {
        check_bounds(block, op.name, *back, back->dpositions.present(), model, findings);
      }
    }
  }
  if (!findings.empty()) throw InputError(format_diagnostics(findings));
}

}  // namespace fpdt
