// A rank from its first collective to its last.
#pragma once

#include "fpdt/nccl/comms.h"
#include "fpdt/runtime/world.h"

namespace fpdt::nccl {

// Together with the other processes: calls rank_main with the collectives of this process's rank.
// Aborts them when it throws.
void serve(Comms& comms, Comm& everybody, World& world, const RankMain& rank_main);

}  // namespace fpdt::nccl
