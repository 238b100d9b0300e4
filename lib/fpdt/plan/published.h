// The policy of the published implementation, as a strategy like any other.
//
// Sources: FPDT (arXiv 2408.16978) and DeepSpeed's fpdt_layer.py. Chunks of 64K tokens over all
// ranks (the default of its flag); queries, keys, values, outputs and their gradients of all chunks
// on the host; one layer's input stored, its forward repeated in backward; backward by KV chunks
// with the query side streamed; the feed-forward in two tiles of a chunk (C / 2P rows) and the loss
// in 32 (C / 32P rows); one transfer ahead; one stream that carries both directions of the copies;
// all-to-alls that wait for the attention before them.
//
// What a strategy cannot say is left out, which favours that implementation: its host waits for the
// device at every tile, its ranks meet at every chunk, and several tensors of S/P rows (norms,
// projections, the residual stream) stay whole on the device.
#pragma once

#include "fpdt/spec/strategy.h"

namespace fpdt {

// Over as many ranks as the heads allow; a sequence shorter than 64K is one chunk.
Strategy published_fpdt(const Problem& problem);

}  // namespace fpdt
