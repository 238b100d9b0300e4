// The policy of the published implementation, as a strategy like any other.
//
// Sources: FPDT (arXiv 2408.16978) and DeepSpeed's fpdt_layer.py. Chunks have 64K tokens over all
// ranks (the default of its flag). Queries, keys, values, outputs and their gradients of all chunks
// are on the host. One layer's input is stored and its forward repeated in backward. Backward goes
// by KV chunks with the query side streamed. The feed-forward runs in two tiles of a chunk (C / 2P
// rows), the loss in 32 (C / 32P rows). Transfers run one ahead; one stream carries both directions
// of the copies; all-to-alls wait for the attention before them.
//
// The policy leaves out what a strategy cannot express, which favours that implementation: its host
// waits for the device at every tile, its ranks meet at every chunk, and several tensors of S/P
// rows (norms, projections, the residual stream) stay whole on the device.
#pragma once

#include <cstdint>

#include "fpdt/spec/strategy.h"

namespace fpdt {

// The strategy, over as many ranks as the heads and the sequences of a step allow. A sequence
// shorter than 64K is one chunk.
Strategy published_fpdt(const Problem& problem, std::int64_t batch = 1);

}  // namespace fpdt
