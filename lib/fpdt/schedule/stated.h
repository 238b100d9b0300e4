// Compares what a file states about its problem with the constants and types of its ops.
//
// The rest of the verifier proves that a schedule is safe, whatever it computes. This part knows
// some of what it should compute. `schedule` reads no problem: who reads it hands over this struct.
//
// clang-format off
//   Stated      S801  an op has another constant than the problem states for layers that call it
//               S802  a buffer has another type than the problem's storage allows
// clang-format on
#pragma once

#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/schedule/schedule.h"

namespace fpdt {

// What layers of one kind compute.
struct StatedKind {
  std::int64_t window = 0;
  Rotary rotary;
  std::int64_t experts = 0;  // 0: its feed-forward is dense
};

struct Stated {
  Dtype storage = Dtype::bf16;  // of parameters and activations; sums are f32
  NormKind norm = NormKind::rms;
  double norm_epsilon = 0;  // of all norms, those of heads included
  ActivationKind activation = ActivationKind::swiglu;
  double attention_scale = 0, attention_cap = 0, logits_cap = 0;
  bool sinks = false;                           // of attention
  bool qk_norm = false, joint_qk_norm = false;  // norms of query and key heads: of each, or of all
  double embedding_scale = 1;
  std::int64_t active_experts = 0;
  bool normalised_experts = true, sigmoid_router = false;
  double expert_scale = 1;  // of their weights
  double balance = 0;       // of a sequence's loss that balances experts
  double z = 0;             // and of its z loss
  std::vector<StatedKind> kinds;
  std::vector<std::int64_t> pattern;  // of layers, as indices; it repeats
  // AdamW. Tensors without decay have 0 instead of weight_decay.
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, clip = 0;
  Dtype gradients = Dtype::f32;  // the least precise that keeps a sum of gradients
};

// All findings, at most kMostFindings. Precondition: `verify` has none.
std::vector<Diagnostic> verify_stated(const Schedule& schedule, const Stated& stated);

}  // namespace fpdt
