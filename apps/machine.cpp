// Flags to a backend.
#include "machine.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

// A rank may wait for as long as others' work queues on the GPU that they share.
constexpr std::chrono::hours kDeadlineOnGpu{24};

void require_sensible(const MachineFlags& flags) {
  const bool cuda = flags.backend == "cuda";
  if (cuda && flags.threads > 0) {
    throw InputError("--threads is for --backend cpu: on a GPU one thread of each rank issues");
  }
  if (!cuda && (flags.device || flags.deterministic)) {
    throw InputError(
        fmt::format("{} needs --backend cuda", flags.device ? "--device N" : "--deterministic"));
  }
}

}  // namespace

RankMachine open_machine(const MachineFlags& flags) {
  require_sensible(flags);
  RankMachine machine;
  if (flags.backend == "cpu") {
    machine.ranks.threads = flags.threads;
    return machine;
  }
  machine.gpu = open_gpu(flags.device.value_or(0), flags.deterministic);
  machine.ranks.make_backend = machine.gpu->make_backend;
  machine.ranks.deadline = kDeadlineOnGpu;
  return machine;
}

}  // namespace fpdt
