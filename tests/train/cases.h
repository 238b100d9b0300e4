// Small problems over the whole decision space, lowered and ready to run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fpdt/plan/lower.h"
#include "fpdt/spec/strategy.h"
#include "fpdt/train/trainer.h"

namespace fpdt {

// Two layers of width 16, four query heads of size 4 unless stated otherwise, 19 words.
// A norm of all heads together; norms after each half of a layer alone.
ModelSpec tiny_olmo();
ModelSpec tiny_experts(std::int64_t experts, std::int64_t active);
// Windows beside full layers, sinks, biases and clamped activations.
ModelSpec tiny_gpt_oss(std::int64_t experts, std::int64_t active);
ModelSpec tiny_gemma2();  // soft caps instead of norms of heads
ModelSpec tiny_gemma();   // post norms, geglu, normed heads, scales of scores and embeddings, tied
ModelSpec tiny_llama();   // RMSNorm, swiglu, rotary, 2 KV heads
ModelSpec tiny_gpt();     // LayerNorm, gelu, biases, learned positions, tied embeddings
ModelSpec tiny_qwen3();   // as llama, heads of size 6 that are normalised and turned by yarn, tied
ModelSpec tiny_neox();    // as gpt, residuals in parallel, half of a head rotates, own head

struct Case {
  std::string name;
  Problem problem;
  Strategy strategy;
};

// f32, one chunk, everything else at its default.
Case make_case(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len,
               std::int64_t chunk_tokens);

// The first cases of a seed that `check` accepts, numbered in their names: `count`, or 40 times as
// many by hand, with FPDT_WHOLE_PRODUCT.
std::vector<Case> drawn_cases(std::size_t count, std::uint32_t seed, Case (*draw)(std::mt19937&));

// A case's schedule with its trainer.
struct Rig {
  explicit Rig(const Case& one, const RankOptions& options = one_thread());
  static RankOptions one_thread();
  // Ops in the order of the schedule, without a thread for each lane, which takes half of the time:
  // for what computes the same in any order. The thread sanitizer has lanes to look at.
  static RankOptions in_order();

  Lowered lowered;
  Trainer trainer;
};

// All states of a kind, concatenated tensor by tensor.
std::vector<float> all_of(const Trainer& trainer, const std::string& kind);

}  // namespace fpdt
