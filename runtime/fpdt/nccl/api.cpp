// Loads NCCL, checks its version, and repeats its words.
#include "fpdt/nccl/api.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt::nccl {
namespace {

// The first that splits communicators.
constexpr int kOldest = NCCL_VERSION(2, 18, 1);
constexpr int kMajor = 10000;

}  // namespace

// Never unloaded: its threads may run until the program ends.
const Api& library() {
  static const Api& loaded = []() -> const Api& {
    const WantedLibrary wanted{"NCCL", "libnccl.so.2",
                               fmt::format("{} or a later {}", version_text(kOldest), NCCL_MAJOR),
                               FPDT_NCCL_FOLDERS};
    const auto* const table = new Api{.library = Library(wanted)};
    require_version(version(*table));
    return *table;
  }();
  return loaded;
}

int version(const Api& api) {
  int found = 0;
  const ncclResult_t result = api.ncclGetVersion(&found);
  if (result != ncclSuccess) throw InputError(fmt::format("NCCL: {}", words(api, result)));
  return found;
}

std::string version_text(int version) {
  // One major version is a thousand up to 2.8, and ten thousand from 2.9 on.
  if (version < kMajor) {
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  }
  return fmt::format("{}.{}.{}", version / kMajor, version / 100 % 100, version % 100);
}

void require_version(int version) {
  if (version >= kOldest && version / kMajor == NCCL_MAJOR) return;
  throw InputError(fmt::format(
      "NCCL {}: expected {} or a later NCCL {} (this program was built with the header of {}); "
      "install one, or name its folder in LD_LIBRARY_PATH",
      version_text(version), version_text(kOldest), NCCL_MAJOR, version_text(NCCL_VERSION_CODE)));
}

std::string words(const Api& api, ncclResult_t result) {
  const char* const last = api.ncclGetLastError(nullptr);
  const std::string text = api.ncclGetErrorString(result);
  if (last == nullptr || *last == '\0') return text;
  return fmt::format("{}: {}", text, last);
}

}  // namespace fpdt::nccl
