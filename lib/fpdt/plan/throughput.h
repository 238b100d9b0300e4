// Flops of a training step as the field counts them, and utilisation by three conventions.
//
// Per token of a sequence of S: 6 N' for the products (N' is the parameters without the input
// embedding, which is a lookup; a tied head counts), and for attention 12 L H D S without the
// causal discount and 6 L H D S with it (PaLM, Chowdhery et al., arXiv 2204.02311, appendix B; the
// causal half: llm.c). In a layer with a window W, S keys become W, and the discount is that of the
// first W tokens: 12 H D W and 12 H D (W - W^2 / 2S).
#pragma once

#include "fpdt/sim/simulate.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

struct ModelFlops {
  double causal = 0;  // of one step, all ranks
  double full = 0;
};
ModelFlops model_flops(const Problem& problem, const Strategy& strategy);

struct Throughput {
  double step_seconds = 0;
  double tokens_per_second_per_gpu = 0;
  double mfu_causal = 0;  // model flops with the causal discount over peak
  double mfu_full = 0;    // without it
  double hfu = 0;         // executed flops over peak, repeated forward and scores included
};
Throughput throughput(const Problem& problem, const Strategy& strategy,
                      const Simulation& simulation);
// The same of a step that takes longer.
Throughput slower(const Throughput& throughput, double more_seconds);

}  // namespace fpdt
