// The choices of a user of NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"

namespace fpdt {

namespace nccl {
struct Api;
}

struct NcclOptions {
  std::int32_t device = 0;  // CUDA's index
  // How long a collective may take, from when it begins on the device.
  std::chrono::milliseconds deadline{300'000};
  // How long the processes may take to form a communicator or to warm it up.
  std::chrono::milliseconds forming{300'000};
  // How long NCCL may take to abort, or to close, its communicators.
  std::chrono::milliseconds abort_limit{10'000};
  // Thread blocks that a collective may occupy, a power of two. NCCL allocates buffers for each of
  // them and each peer (nccl/communicator.h), and each takes a multiprocessor while it runs.
  std::int32_t channels = 32;
  // Lets NCCL add. The order of the additions then depends on the network, the number of ranks and
  // the version, and sums of bf16 are rounded at each step, but each block crosses a link once.
  bool native_sums = false;
  // Told how much device memory the communicators take, when they are warm. Null: nobody.
  std::function<void(Bytes)> warmed_up;
  // Asked a few times a second, by another thread: what else ends the job, if anything does. Null:
  // nothing.
  std::function<std::optional<Error>()> bad_news;
  // NCCL's functions; null: those of the library.
  const nccl::Api* api = nullptr;
  // Called with the first cause when NCCL does not abort in time. Null: prints it and ends the
  // process with its code, without destructors, which would hang as well. In a test it returns once
  // NCCL goes on.
  std::function<void(const Error&)> give_up;
};

}  // namespace fpdt
