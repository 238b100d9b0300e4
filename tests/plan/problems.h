// Small questions for the tests of lowering.
#pragma once

#include "fpdt/spec/strategy.h"

namespace fpdt::test {

// Two layers of width 32: Llama with 4 query and 2 KV heads, or GPT with biases and learned
// positions.
ModelSpec tiny_llama();
ModelSpec tiny_gpt();

// `ranks` devices, ample memory.
Problem tiny_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len);

// f32, small tiles, everything spilled.
Strategy tiny_strategy(std::int64_t chunk_tokens);

}  // namespace fpdt::test
