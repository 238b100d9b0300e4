// Prints docs/results/published.md.
#include <cstdio>

#include "answers.h"
#include "page.h"

int main() {
  using namespace fpdt::test;
  const auto sources = load_sources();
  std::fputs(page(sources, predict_all(sources), load_misses()).c_str(), stdout);
  std::vector<AnswerPanel> panels;
  for (const std::vector<Cell>& cells : panels_of(sources)) panels.push_back(answer(cells, true));
  std::fputs(answers_text(panels).c_str(), stdout);
  return 0;
}
