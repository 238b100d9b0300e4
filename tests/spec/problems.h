// Small questions, and those of real models.
#pragma once

#include "fpdt/spec/strategy.h"

namespace fpdt::test {

// Two layers of width 32: Llama with 4 query and 2 KV heads, or GPT with biases and learned
// positions.
ModelSpec tiny_llama();
ModelSpec tiny_gpt();

// `ranks` devices, ample memory.
Problem tiny_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len);

// What all sizes of Llama 3 share, 8 KV heads of 128 and 128256 words, with the sizes that differ.
ModelSpec llama3(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                 std::int64_t feed_forward);
// Shapes of Llama 3 8B on four and 70B on 32 A100 80 GB, in nodes of four with 1 TiB of host
// memory.
Problem llama3_8b(std::int64_t seq_len);
Problem llama3_70b(std::int64_t seq_len);

// Has rates with slow copies and collectives but quick arithmetic, so that it matters where chunks
// live. At most eight chunks.
Problem timed_problem(const ModelSpec& model, std::int64_t ranks, std::int64_t seq_len);

// f32, small tiles, everything is spilled.
Strategy tiny_strategy(std::int64_t chunk_tokens);

}  // namespace fpdt::test
