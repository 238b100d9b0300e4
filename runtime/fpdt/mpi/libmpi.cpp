// Name, version and folders of Open MPI.
#include "fpdt/mpi/libmpi.h"

#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {

// It is not unloaded: its own plugins use it until the end of the program.
const LibMpi& libmpi() {
  static const LibMpi& loaded = []() -> const LibMpi& {
    const WantedLibrary wanted{"Open MPI", "libmpi.so.40", "4.1 or later", FPDT_MPI_FOLDERS};
    const auto* const table = new LibMpi{.library = Library(wanted)};
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    table->MPI_Get_library_version(version.data(), &length);
    require_open_mpi(version.data());
    return *table;
  }();
  return loaded;
}

void require_open_mpi(const char* version) {
  int major = 0;
  int minor = 0;
  const int found = std::sscanf(version, "Open MPI v%d.%d", &major, &minor);
  if (found == 2 && (major > 4 || (major == 4 && minor >= 1))) return;
  throw InputError(fmt::format(
      "\"{}\": expected Open MPI 4.1 or later; install one, or name its folder in LD_LIBRARY_PATH",
      version));
}

}  // namespace fpdt
