// Flags to a backend.
#include "machine.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/runtime/arena.h"

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

Bytes size_of(std::string_view flag, const std::string& text) {
  const std::optional<Bytes> bytes = parse_bytes(text);
  if (!bytes || bytes->value == 0) {
    throw InputError(fmt::format("{}: expected a size such as 8GiB, found \"{}\"", flag, text));
  }
  return *bytes;
}

RankMachine open_machine(const MachineFlags& flags) {
  require_sensible(flags);
  if (!flags.host_memory.empty()) declare_host_memory(size_of("--host-memory", flags.host_memory));
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
