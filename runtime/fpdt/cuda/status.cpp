// Maps CUDA's error codes to the exceptions of this project.
#include "fpdt/cuda/status.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt::cuda {
namespace {

ExitCode code_of(cudaError_t status) {
  switch (static_cast<int>(status)) {
    case cudaErrorMemoryAllocation:
      return ExitCode::out_of_memory;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
      return ExitCode::bad_input;
    default:
      return ExitCode::internal;
  }
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const std::string message = fmt::format("{}: CUDA says: {} ({})", what,
                                          cudaGetErrorString(status), cudaGetErrorName(status));
  const ExitCode code = code_of(status);
  if (code == ExitCode::out_of_memory) throw MemoryError(message);
  if (code == ExitCode::bad_input) throw InputError(message);
  throw Error(code, message);
}

}  // namespace fpdt::cuda
