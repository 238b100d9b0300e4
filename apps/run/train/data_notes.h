// Notes on uses of tokens in a run that its user may not expect, one line each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/train/batches.h"

namespace fpdt {

// Steps `next` to `last`, of so many sequences each, on what follows the cursor of the data.
struct TrainingUse {
  std::int64_t next = 1, last = 1;
  std::int64_t sequences = 1;
};
std::vector<std::string> notes_on(const Batches& data, const TrainingUse& use);

// An evaluation of the first sequences after every so many steps.
struct EvaluationUse {
  std::int64_t last_step = 1, every = 1;
  std::int64_t sequences = 1;
};
std::vector<std::string> notes_on(const Batches& data, const EvaluationUse& use);

}  // namespace fpdt
