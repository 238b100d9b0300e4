// Whether one or two levers beat an answer of the search.
#pragma once

#include <string>

#include "fpdt/plan/search/search.h"

namespace fpdt::test {

struct Climbed {
  double gain = 0;  // of the answer's time, at most
  std::string words;
};

// The fastest of all strategies one or two levers away that fit as placed.
Climbed climbed(const Problem& problem, const Candidate& answer);

}  // namespace fpdt::test
