// Names, versions and folders.
#include "fpdt/cuda/libraries.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt::cuda {
namespace {

// 9.10.0 and 9.10.1 have a broken backward pass; before 9.10 masks were others, and before 9.8
// there was no plan without a handle.
constexpr std::size_t kOldestCudnn = 91002;
constexpr std::size_t kNextCudnn = 100000;

}  // namespace

// Neither is unloaded: at the end of the program the libraries that they load themselves go first.
const CublasLt& cublaslt() {
  static const CublasLt& loaded = []() -> const CublasLt& {
    const WantedLibrary wanted{"cuBLASLt", fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
                               std::to_string(CUBLAS_VER_MAJOR), FPDT_CUBLASLT_FOLDERS};
    const auto* const table = new CublasLt{.library = Library(wanted)};
    require_cublaslt(table->cublasLtGetVersion());
    return *table;
  }();
  return loaded;
}

const Cudnn& cudnn() {
  static const Cudnn& loaded = []() -> const Cudnn& {
    const WantedLibrary wanted{"cuDNN", "libcudnn.so.9",
                               fmt::format("{} or a later 9", cudnn_version_text(kOldestCudnn)),
                               FPDT_CUDNN_FOLDERS};
    const auto* const table = new Cudnn{.library = Library(wanted)};
    require_cudnn(table->cudnnGetVersion());
    return *table;
  }();
  return loaded;
}

void require_cublaslt(std::size_t version) {
  constexpr std::size_t kMajor = 10000;
  if (version / kMajor == CUBLAS_VER_MAJOR) return;
  throw InputError(fmt::format(
      "cuBLASLt {}.{}.{}: this program is built for {}; install that, or build with its headers",
      version / kMajor, version / 100 % 100, version % 100, CUBLAS_VER_MAJOR));
}

void require_cudnn(std::size_t version) {
  if (version >= kOldestCudnn && version < kNextCudnn) return;
  throw InputError(
      fmt::format("cuDNN {}: expected {} or a later version of cuDNN 9; install one, or name its "
                  "folder in LD_LIBRARY_PATH",
                  cudnn_version_text(version), cudnn_version_text(kOldestCudnn)));
}

std::string cudnn_version_text(std::size_t version) {
  // Up to cuDNN 8 a thousand, from 9 on ten thousand, is one major version.
  if (version < 10000) {
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace fpdt::cuda
