// The levers of a strategy. Each lists the values that one choice may take while the others stay.
//
// The search improves one lever at a time, the report says what each lever is worth, and tests use
// the same levers to check that an answer cannot be improved.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fpdt/spec/choices.h"

namespace fpdt {

struct Change {
  std::string words;  // "chunk_tokens 64K -> 128K"
  Strategy strategy;
};

struct Lever {
  std::string name;
  // Sound strategies that differ from the given one in this lever only, within budgets or not.
  std::function<std::vector<Change>(const Problem&, const Strategy&)> changes;
};

// One lever for each choice that a search changes. The table must outlive them.
std::vector<Lever> levers(Choices table = choices());

// Describes a strategy in a sentence or two for people.
std::string in_words(const Problem& problem, const Strategy& strategy, Choices table = choices());

}  // namespace fpdt
