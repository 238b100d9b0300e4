// Writes the section of the answers as Markdown.
#include <cmath>

#include <fmt/format.h>

#include "fpdt/report/axis.h"

#include "answers.h"

namespace fpdt::test {
namespace {

constexpr double kTold = 0.005;  // of the first step: choices that gain less are summed up

std::string longest_row(const AnswerPanel& panel, const Method& method) {
  const std::int64_t longest = longest_published(panel, method);
  if (longest == 0) return "";
  const AnswerAt& at = answer_at(panel, longest);
  double seconds = 0;
  for (const PublishedForm& form : at.published) {
    if (form.method == &method) seconds = form.seconds;
  }
  return fmt::format("| {}: {} on {} | {} | {} | {} | {} | {} | {:.2f}x |\n", panel.name,
                     panel.model, panel.cluster, method.title, format_tokens(longest),
                     format_tokens(panel.longest), format_seconds(seconds),
                     format_seconds(at.seconds), seconds / at.seconds);
}

// The published step over that of the answer, of each form that fits.
std::string ratios_row(const AnswerPanel& panel, const Method& method) {
  std::string text;
  for (const AnswerAt& at : panel.lengths) {
    for (const PublishedForm& form : at.published) {
      if (form.method != &method || !form.fits) continue;
      text += fmt::format("{}{} {:.2f}x", text.empty() ? "" : ", ", format_tokens(at.seq_len),
                          form.seconds / at.seconds);
    }
  }
  if (text.empty()) return "";
  return fmt::format("| {} | {} | {} |\n", panel.name, method.title, text);
}

std::string ladder_rows(const AnswerPanel& panel) {
  const std::string start =
      fmt::format("{}, {} tokens", panel.name, format_tokens(panel.ladder_length));
  std::string text;
  double small = 0;
  std::int64_t smalls = 0;
  const double first = panel.ladder.front().seconds;
  const auto row = [&](double gained, const std::string& choice) {
    text += fmt::format("| {} | {:+.1f} % | {} |\n", start, 100 * gained / first, choice);
  };
  for (std::size_t i = 1; i < panel.ladder.size(); ++i) {
    const double gained = panel.ladder[i - 1].seconds - panel.ladder[i].seconds;
    if (std::abs(gained) >= kTold * first) {
      row(gained, panel.ladder[i].choice);
    } else {
      small += gained;
      ++smalls;
    }
  }
  if (smalls > 0) row(small, fmt::format("{} other choices together", smalls));
  const double last = panel.ladder.back().seconds;
  row(first - last, fmt::format("**all**: {} as published {}, the answer {}", panel.from->title,
                                format_seconds(first), format_seconds(last)));
  return text;
}

}  // namespace

std::vector<std::string> answer_rows(const AnswerPanel& panel) {
  std::vector<std::string> rows;
  for (const Method* method : methods()) {
    rows.push_back(longest_row(panel, *method));
    rows.push_back(ratios_row(panel, *method));
  }
  if (!panel.ladder.empty()) rows.push_back(ladder_rows(panel));
  return rows;
}

std::string answers_text(const std::vector<AnswerPanel>& panels) {
  std::string text(kAnswersHeading);
  text +=
      "\nThe answer of `fpdt-plan search`, with no method pinned, beside the methods as their "
      "authors run\n"
      "them: at each length above at which a method as published fits in simulation. Both are "
      "simulated\n"
      "at the same rates, also for heads of 80 (gpt-2.7b), for which fpdt runs kernels of its own "
      "that\n"
      "are slower. A test requires the answer to be nowhere slower and nowhere shorter.\n\n"
      "Each row is at the longest length of a method. The last length of the answer is the longest "
      "power\n"
      "of two that fits by closed forms.\n\n"
      "| panel | method | its longest | the answer's longest | its step | the answer's step | "
      "faster |\n"
      "|---|---|---|---|---|---|---|\n";
  const auto all = methods();
  const auto rows = [&](auto row) {
    for (const AnswerPanel& panel : panels) {
      for (const Method* method : all) text += row(panel, *method);
    }
  };
  rows(longest_row);
  text +=
      "\nHow many times as fast the answer is, at every length:\n\n"
      "| panel | method | tokens, and the step as published over the answer's |\n|---|---|---|\n";
  rows(ratios_row);
  text +=
      "\nWhich choice gave what: the ladder of `compare --ladder` at the longest length at which "
      "a method\n"
      "as published fits. Each choice is the one that gains most at that point; gains are shares "
      "of the\n"
      "step as published.\n\n"
      "| panel | gained | choice |\n|---|---|---|\n";
  for (const AnswerPanel& panel : panels) {
    if (!panel.ladder.empty()) text += ladder_rows(panel);
  }
  return text;
}

}  // namespace fpdt::test
