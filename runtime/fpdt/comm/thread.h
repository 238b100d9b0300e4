// Ranks as threads of one process.
//
// A collective is a meeting of its group. Every rank publishes its views, waits for the others,
// copies what it receives out of their memory, and waits until all have done so. Each lane has its
// own meetings, so collectives of two lanes may overlap. A rank that fails wakes all others, and no
// rank waits longer than the deadline. On a CPU the lanes' threads meet. On GPUs the
// issuing threads meet and exchange marks, and their streams wait for these.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "fpdt/runtime/communicator.h"

namespace fpdt {

struct ThreadOptions {
  std::chrono::milliseconds deadline{300'000};  // for each wait for a peer
};

// Calls rank_main once for each rank, each on its own thread with its own communicator. Returns
// when all calls have returned. If a rank throws, the others are woken, and the earliest error is
// rethrown.
void run_ranks(std::int64_t ranks, const std::function<void(Communicator&)>& rank_main,
               const ThreadOptions& options = {});

}  // namespace fpdt
