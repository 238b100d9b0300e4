// Opens the world of a process with a GPU of its own, and the way in which its rank meets the
// others through NCCL. This header knows nothing of NCCL.
#pragma once

#include <memory>

#include "fpdt/nccl/options.h"
#include "fpdt/nccl/torchrun.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

// `connect` refers to `world`, which must outlive it.
struct NcclJob {
  std::unique_ptr<World> world;
  Connect connect;
};

// Together with the other processes that torchrun started: a world that needs nothing but NCCL
// (nccl/world.h). Throws InputError when this build has no NCCL, when the library is missing or too
// old, and when rank 0 cannot listen.
NcclJob open_nccl(const Torchrun& job, const NcclOptions& options);

// Connects the rank of this process with those of the others. Precondition: a process holds one
// rank. The world must outlive the result, and replaces `bad_news` of the options. The result is
// called together with the other processes. It tells all of them where process 0 listens, through
// the world: NCCL's identifier is a secret, and whoever has it can join. Throws InputError as
// open_nccl does, and when a process has another version than the others.
Connect connect_nccl(World& world, NcclOptions options);

}  // namespace fpdt
