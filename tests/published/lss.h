// The abstract of LSS as a scenario: LSS as published, which fpdt plans, beside the sequence
// parallelism of Megatron (Korthikanti et al., arXiv 2205.05198) in closed forms. Megatron's is no
// method of fpdt, so it is known here only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cells.h"

namespace fpdt::test {

struct Claims {
  std::string source, read, model, cluster;
  std::vector<std::int64_t> gpus;
  std::int64_t compared = 0, longest = 0;
  double faster = 0, smaller = 0, efficiency = 0, petaflops = 0;
};
Claims load_claims();
// A sequence of so many tokens on so many GPUs.
Problem question(const Claims& claims, std::int64_t gpus, std::int64_t seq_len);

// GPUs that share a sequence: the most that divide both the heads and the GPUs.
std::int64_t megatron_ranks(const Problem& problem);
// Of one device, with what lies outside tensors.
Bytes megatron_bytes(const Problem& problem);
// A step in which each group of ranks trains a sequence.
double megatron_seconds(const Problem& problem);

// LSS as published, with its waste.
struct LssStep {
  Bytes device;
  double seconds = 0;
  double ring_seconds = 0;  // with the gradients of keys summed in a ring, in 16 bits
  double flops = 0;         // per second of all GPUs, over the full square
};
LssStep lss_step(const Problem& problem);

struct LssRow {
  std::int64_t gpus = 0, ranks = 0;                    // ranks: of Megatron
  std::int64_t lss_longest = 0, megatron_longest = 0;  // tokens that fit
  LssStep lss;                                         // at the longest claimed
  Bytes megatron;
  double megatron_seconds = 0;
  // With as many tokens a GPU as the longest claimed has on the most GPUs.
  std::int64_t scaled = 0;
  double efficiency = 0;  // flops per second and GPU, over those on the fewest GPUs
};
std::vector<LssRow> lss_rows(const Claims& claims);

// The section of the page.
std::string lss_text(const Claims& claims, const std::vector<LssRow>& rows);

}  // namespace fpdt::test
