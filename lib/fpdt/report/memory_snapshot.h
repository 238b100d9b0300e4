// The live bytes of a step as a memory snapshot of PyTorch, the pickle that
// torch.cuda.memory._dump_snapshot writes and https://docs.pytorch.org/memory_viz shows.
//
// Device 0 is the device arena, device 1 the pinned host arena. Each is one segment at address 0,
// so that addresses are offsets into the arena. Every value of a temporary buffer is an allocation.
// Its frames name the buffer, version and slot, and the op and call that began or ended it.
#pragma once

#include <string>

#include "fpdt/report/live.h"

namespace fpdt {

// A value takes about 430 bytes, and the viewer keeps an object for each of its events.
inline constexpr std::size_t kSnapshotValues = 500'000;

// Precondition: buffers are placed. InputError if the run has more values than `most`.
std::string memory_snapshot(const TracedRun& run, std::size_t most = kSnapshotValues);

}  // namespace fpdt
