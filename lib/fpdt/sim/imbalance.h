// Attention whose pairs differ between ranks: a causal ring without zigzag gives the last rank the
// most.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fpdt/cost/demand.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

struct Imbalance {
  std::int64_t heaviest = 0;           // the first rank with the most flops
  std::array<double, kWorks> spare{};  // its flops less the mean of all ranks, by Work
};

// `calls`: how often each block is called. Takes time for each attention tile, and for each chunk
// of queries on each class of ranks.
Imbalance imbalance_of(const Schedule& schedule, const std::vector<std::int64_t>& calls);

}  // namespace fpdt
