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
  // in backward and summed in f32. 0: each tile of rows gathers slices of them again, so that both
  // grow with the tokens.
  std::int64_t crossing = 0;
  // Where tiles of rows meet slices of experts in turn: the other order, in which a slice meets all
  // rows of a layer. Experts are gathered as often as without slices, and rows pass the copy lanes
  // for each slice: the input and the sum of outputs, and in backward the input, the
  // gradient of the output and the sum of gradients. 0 without slices.
  struct SlicesOutside {
    std::int64_t gathered = 0, rows = 0;  // bytes of rank 0 in a step
  } outside;
};

// Of the schedule of a strategy. Precondition: the model has experts.
ExpertsTraffic experts_traffic(const Problem& problem, const Strategy& strategy,
                               const Schedule& schedule);

}  // namespace fpdt
