// No MPI: this program was built without its headers.
#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/mpi/open.h"

namespace fpdt {

MpiJob open_mpi(const MpiOptions&) {
  throw InputError(
      fmt::format("this program was built without MPI ({}); see docs/processes.md", FPDT_MPI_WHY));
}

}  // namespace fpdt
