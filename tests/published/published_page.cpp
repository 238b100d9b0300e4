// Prints docs/results/published.md.
#include <cstdio>

#include "page.h"

int main() {
  using namespace fpdt::test;
  const auto sources = load_sources();
  std::fputs(page(sources, predict_all(sources), load_misses()).c_str(), stdout);
  return 0;
}
