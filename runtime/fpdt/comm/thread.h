// Ranks as threads of one process.
//
// A collective is a meeting of its group: every rank publishes its views, waits for the others,
// copies what it receives out of their memory, and waits until all have done so. Each lane has its
// own meetings, so that collectives of two lanes may overlap. A rank that fails wakes all others,
// and no rank waits longer than the deadline. On a CPU the lanes meet. On a GPU that the ranks
// share, the issuing threads meet and leave each other marks, for which their streams wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "fpdt/runtime/communicator.h"

namespace fpdt {

struct ThreadOptions {
  std::chrono::milliseconds deadline{300'000};  // of every wait for a peer
};

// Calls rank_main once for each rank, each on a thread of its own with its end of a communicator,
// and returns when all have returned. When ranks throw, the others are woken and the first error
// (by time) is rethrown.
void run_ranks(std::int64_t ranks, const std::function<void(Communicator&)>& rank_main,
               const ThreadOptions& options = {});

}  // namespace fpdt
