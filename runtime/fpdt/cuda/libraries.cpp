// Names, versions and folders of NVIDIA's libraries.
#include "fpdt/cuda/libraries.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt::cuda {
namespace {

// 9.10.0 and 9.10.1 have a broken backward pass. Versions before 9.10 have other masks, and
// versions before 9.8 cannot make a plan without a handle.
constexpr std::size_t kOldestCudnn = 91002;
constexpr std::size_t kNextCudnn = 100000;

}  // namespace

// Neither library is unloaded: at program exit, the libraries that they load themselves are
// unloaded first.
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
  // One major version is a thousand up to cuDNN 8, and ten thousand from cuDNN 9 on.
  if (version < 10000) {
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace fpdt::cuda
