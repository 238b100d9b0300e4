// The levers of a strategy: for each, the values that it may take beside the others as they are.
//
// The search improves one lever at a time, the report says what each lever is worth, and tests ask
// the same levers whether an answer can be improved.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fpdt/spec/strategy.h"

namespace fpdt {

struct Change {
  std::string words;  // "chunk_tokens 64K -> 128K"
  Strategy strategy;
};

struct Lever {
  std::string name;
  // Sound strategies that differ from the given one in this lever alone, within budgets or not.
  std::function<std::vector<Change>(const Problem&, const Strategy&)> changes;
};

// All levers of FPDT.
std::vector<Lever> levers();

// What a strategy does, in a sentence or two for people.
std::string in_words(const Problem& problem, const Strategy& strategy);

}  // namespace fpdt
