// The variables that Open MPI's launchers set.
#include <cstdlib>

#include "fpdt/mpi/open.h"

namespace fpdt {

bool is_launched_by_mpi() {
  return std::getenv("PMIX_RANK") != nullptr || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
}

}  // namespace fpdt
