// Checks the names, purposes and bounds of the inputs.
#include "fpdt/train/feeds.h"

#include <optional>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/schedule/roles.h"

namespace fpdt {
namespace {

// The contents that the trainer puts into an input, in the verifier's words: "" for step_input,
// which holds no integers; empty if the trainer puts nothing there.
std::optional<std::string_view> fed_with(const Schedule& schedule, const Buffer& buffer) {
  if (buffer.name == kStepInput) return "";
  for (const Holds holds : {Holds::tokens, Holds::labels, Holds::documents}) {
    if (buffer.name == input_name(schedule, holds)) return word(holds);
  }
  return std::nullopt;
}

void check_inputs(const Schedule& schedule, std::vector<Diagnostic>& findings) {
  const std::vector<std::string_view> served = purposes_of(schedule);
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (buffer.role != Role::input) continue;
    const std::optional<std::string_view> fed = fed_with(schedule, buffer);
    const std::string where = fmt::format("buffer {}", buffer.name);
    if (!fed) {
      findings.push_back({"R105", where, "is an input that training does not fill"});
    } else if (!served[i].empty() && served[i] != *fed) {
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

std::string_view input_name(const Schedule& schedule, Holds holds) {
  for (const Feed& feed : schedule.feeds) {
    if (feed.holds == holds) return schedule.buffers[static_cast<std::size_t>(feed.buffer)].name;
  }
  if (!schedule.feeds.empty()) return "";
  return holds == Holds::tokens   ? kTokensInput
         : holds == Holds::labels ? kLabelsInput
                                  : kDocumentsInput;
}

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
