// The answer of the search beside each published form, for every model and machine of the tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cells.h"

namespace fpdt::test {

// A method as its authors run it, at a length of its cells.
struct PublishedForm {
  const Method* method = nullptr;
  bool fits = false;
  double seconds = 0;  // of a step
};

// One length of a panel. Seconds are 0 where the answer is that nothing fits.
struct AnswerAt {
  std::int64_t seq_len = 0;
  double seconds = 0;  // of a step of the answer
  std::vector<PublishedForm> published;
};

// A choice of the answer, and the seconds of a step once it is made.
struct LadderStep {
  std::string choice;
  double seconds = 0;
};

// One model on one machine.
struct AnswerPanel {
  std::string name, model, cluster;
  std::vector<AnswerAt> lengths;  // of its cells, ascending
  std::int64_t longest = 0;       // of powers of two, that the answer fits by closed forms
  // From `from` as published to the answer, at the longest length that it fits.
  const Method* from = nullptr;
  std::int64_t ladder_length = 0;
  std::vector<LadderStep> ladder;
};

// The length of a method's cells that is the longest that fits in simulation; 0: none.
std::int64_t longest_published(const AnswerPanel& panel, const Method& method);
// The entry of a length, which the panel has.
const AnswerAt& answer_at(const AnswerPanel& panel, std::int64_t seq_len);

// The cells of each panel, in the order of the sources.
std::vector<std::vector<Cell>> panels_of(const std::vector<Source>& sources);

// One search for each length. A ladder takes longer than the rest.
AnswerPanel answer(const std::vector<Cell>& panel, bool with_ladder);

// The section of the page, which begins with a heading, and the rows that it has of one panel.
inline constexpr std::string_view kAnswersHeading = "\n## The answer beside each published form\n";
std::string answers_text(const std::vector<AnswerPanel>& panels);
std::vector<std::string> answer_rows(const AnswerPanel& panel);

}  // namespace fpdt::test
