// Searches without a pinned method, at the lengths of published runs.
#include "answers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fpdt/plan/search/feasible.h"
#include "fpdt/plan/search/ladder.h"

namespace fpdt::test {
namespace {

constexpr auto kTypical = static_cast<std::size_t>(RateEnd::typical);

double step_seconds(const Plan& plan) { return plan.throughput[kTypical].step_seconds; }

// The answer and the published forms have kernels at the same rates.
Problem question_at(Cell cell, std::int64_t seq_len) {
  cell.seq_len = seq_len;
  return with_published_kernels(question(cell));
}

// The configuration of a panel, run by one of its methods.
PublishedPlan published_at(Cell cell, const Method& method, const Problem& problem) {
  cell.method = &method;
  return published_plan(problem, method, strategy_of(cell, problem));
}

// Goes on from the longest published length.
std::int64_t longest_answer(const Cell& cell, std::int64_t published) {
  const auto fits = [&](std::int64_t tokens) {
    return any_fit(question_at(cell, tokens), {}).has_value();
  };
  std::int64_t longest = published;
  std::int64_t power = 1;
  while (power <= published) power *= 2;
  for (; fits(power); power *= 2) longest = power;
  return longest;
}

std::vector<LadderStep> ladder_of(const Problem& problem, const PublishedPlan& start,
                                  const Strategy& answer) {
  const Machine machine(problem.cluster, RateEnd::typical);
  std::vector<LadderStep> steps{{"as published", step_seconds(start.plan)}};
  for (const Rung& rung : ladder(problem, start.plan.strategy, answer)) {
    steps.push_back(
        {rung.lever.empty() ? "without the waste of its implementation" : rung.lever,
         1e-9 * static_cast<double>(step_nanoseconds(problem, rung.strategy, machine))});
  }
  return steps;
}

}  // namespace

std::int64_t longest_published(const AnswerPanel& panel, const Method& method) {
  std::int64_t longest = 0;
  for (const AnswerAt& at : panel.lengths) {
    for (const PublishedForm& form : at.published) {
      if (form.method == &method && form.fits) longest = std::max(longest, at.seq_len);
    }
  }
  return longest;
}

const AnswerAt& answer_at(const AnswerPanel& panel, std::int64_t seq_len) {
  return *std::find_if(panel.lengths.begin(), panel.lengths.end(),
                       [&](const AnswerAt& at) { return at.seq_len == seq_len; });
}

std::vector<std::vector<Cell>> panels_of(const std::vector<Source>& sources) {
  std::vector<std::vector<Cell>> panels;
  for (const Source& source : sources) {
    const Cell* before = nullptr;
    for (const Cell& cell : source.cells) {
      if (before == nullptr || before->panel != cell.panel) panels.emplace_back();
      panels.back().push_back(cell);
      before = &cell;
    }
  }
  return panels;
}

AnswerPanel answer(const std::vector<Cell>& cells, bool with_ladder) {
  const Cell& like = cells.front();
  AnswerPanel panel;
  panel.name = like.panel;
  panel.model = like.model;
  panel.cluster = like.cluster;
  std::map<std::int64_t, std::vector<const Method*>> lengths;
  for (const Cell& cell : cells) lengths[cell.seq_len].push_back(cell.method);
  std::optional<Strategy> best;  // at ladder_length
  for (const auto& [seq_len, methods] : lengths) {
    const Problem problem = question_at(like, seq_len);
    AnswerAt at{seq_len, 0, {}};
    const SearchResult found = search(problem);
    if (found.best) at.seconds = step_seconds(make_plan(problem, found.best->strategy));
    for (const Method* method : methods) {
      const Plan plan = published_at(like, *method, problem).plan;
      at.published.push_back({method, within(problem, plan.usage), step_seconds(plan)});
      const bool longer = seq_len > panel.ladder_length;
      if (!longer || !at.published.back().fits || !found.best) continue;
      panel.from = method;
      panel.ladder_length = seq_len;
      best = found.best->strategy;
    }
    panel.lengths.push_back(std::move(at));
  }
  panel.longest = longest_answer(like, panel.ladder_length);
  if (best && with_ladder) {
    const Problem problem = question_at(like, panel.ladder_length);
    panel.ladder = ladder_of(problem, published_at(like, *panel.from, problem), *best);
  }
  return panel;
}

}  // namespace fpdt::test
