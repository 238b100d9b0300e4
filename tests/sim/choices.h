// Random small questions for the tests of simulation: a problem with rates, and a strategy that is
// valid for it.
#pragma once

#include <cstdint>

#include "fpdt/spec/strategy.h"

namespace fpdt::test {

struct Choice {
  Problem problem;
  Strategy strategy;
};

// The same seed gives the same choice.
Choice random_choice(std::uint32_t seed);

// Rates of an A100 and its links, every one exact.
Rates a100_rates();

}  // namespace fpdt::test
