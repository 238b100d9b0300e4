// Small models and samples that together use every alternative of a ModelSpec.
#pragma once

#include <cstdint>
#include <vector>

#include "fpdt/reference/model.h"

namespace fpdt::reference {

// Llama: RMSNorm, swiglu, 4 query heads on 2 KV heads, all of a head rotates.
ModelSpec llama_model();
// The same, but half of a head rotates, with the llama3 frequencies.
ModelSpec llama3_model();
// Llama with normalised heads wider than hidden/heads, yarn frequencies and a magnitude.
ModelSpec qwen3_model();
// Llama with a window of 3 in two of three layers, and rotary bases by kind.
ModelSpec windowed_model();
// Gemma 3: windows, post norms, geglu, scaled embeddings, another scale of scores, tied.
ModelSpec sinks_model();
ModelSpec experts_model();  // two of four experts
ModelSpec gemma_model();
ModelSpec gemma2_model();  // soft caps instead of norms of heads
// GPT: LayerNorm, gelu, biases, learned positions, tied embeddings.
ModelSpec gpt_model(ActivationFamily activation);

// Deliberately far from the start of a training (deviation 0.3, norms about 1, biases about 0), so
// that no gradient is tiny and every parameter has an effect.
Parameters random_parameters(const ModelSpec& model, std::uint64_t seed);

// One sample of documents of these lengths; every fourth label is masked.
Sample random_sample(const ModelSpec& model, const std::vector<std::int32_t>& lengths,
                     std::uint64_t seed);

}  // namespace fpdt::reference
