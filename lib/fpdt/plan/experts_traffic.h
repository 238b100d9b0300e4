// What experts cost on the way: their weights go to the tokens here, and the other way is to send
// tokens to experts that are divided over ranks (Lepikhin et al., arXiv 2006.16668).
#pragma once

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct ExpertsTraffic {
  // Bytes that rank 0 sends in a step of the matrices of experts and of sums of their gradients.
  std::int64_t gathered = 0;
  // Bytes that it would send of rows to experts and back, forward and backward, if these were
  // divided over the ranks of its sequence and each served equally many rows. Backward that makes
  // rows again would send those of forward once more; that is not counted.
  std::int64_t tokens = 0;
  std::int64_t tokens_of_rank = 0;  // of a sequence
  // Tokens of a rank from which gathered experts are fewer bytes: the first number grows with the
  // layers, the second with the tokens. 3 X F / k in bf16 where experts are gathered in forward and
  // in backward and summed in f32. 0: tiles of rows gather slices of them again, so that both grow
  // with the tokens.
  std::int64_t crossing = 0;
  // Of slices of experts: the two loops over them and over tiles of rows. Which is the outer one,
  // and what a rank sends so, and of the device's memory the buffers of tiles that are open while
  // slices pass. 0: one tile has all rows of an extent, so that the loops are the same.
  ExpertLoop loop = ExpertLoop::tiles;
  struct Loops {
    std::int64_t tiles_outside = 0, slices_outside = 0, open_tiles = 0;  // bytes
  } loops;
};

// Of the schedule of a strategy. Precondition: the model has experts.
ExpertsTraffic experts_traffic(const Problem& problem, const Strategy& strategy,
                               const Schedule& schedule);

}  // namespace fpdt
