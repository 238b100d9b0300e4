// Opens the world of a process that was started by mpirun or another launcher of Open MPI, and the
// way in which its rank meets the others. This header knows nothing of MPI.
#pragma once

#include <chrono>
#include <memory>

#include "fpdt/base/units.h"
#include "fpdt/runtime/world.h"

namespace fpdt {

struct MpiOptions {
  // For each wait for other processes. It starts anew whenever a message arrives.
  std::chrono::milliseconds deadline{300'000};
  // How long a process waits for answers of others after its deadline, and for their arrival after
  // a failure.
  std::chrono::milliseconds grace{2'000};
  // The longest message; a longer one is sent in pieces. Positive, less than 2 GiB.
  Bytes piece{64 << 20};
};

// `connect` calls its argument once, on the calling thread, with this process's rank. It refers to
// `world`, which must outlive it.
struct MpiJob {
  std::unique_ptr<World> world;
  Connect connect;
};

// Whether a launcher of Open MPI started this process.
bool is_launched_by_mpi();

// At most once in a process. Throws InputError when this build has no MPI, when Open MPI is missing
// or too old, and when no launcher started this process. Ends the process with exit code 6 when
// not all processes start before the deadline.
MpiJob open_mpi(const MpiOptions& options);

}  // namespace fpdt
