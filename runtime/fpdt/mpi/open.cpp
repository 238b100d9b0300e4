// The parts of a job of several processes.
#include "fpdt/mpi/open.h"

#include "fpdt/mpi/communicator.h"
#include "fpdt/mpi/world.h"

namespace fpdt {

MpiJob open_mpi(const MpiOptions& options) {
  auto world = std::make_unique<MpiWorld>(options);
  Connect connect = connect_mpi(*world);
  return {std::move(world), std::move(connect)};
}

}  // namespace fpdt
