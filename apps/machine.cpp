// Flags to a backend.
#include "machine.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/units.h"
#include "fpdt/runtime/arena.h"

namespace fpdt {
namespace {

// More than any machine has cores.
constexpr std::int64_t kThreadsMax = 1024;
// A rank may wait until the work that others queued on the shared GPU is done.
constexpr std::chrono::hours kDeadlineOnGpu{24};

void require_sensible(const MachineFlags& flags) {
  const bool cuda = flags.backend == "cuda";
  if (cuda && flags.threads > 0) {
    throw InputError("--threads is for --backend cpu: on a GPU each rank has one thread");
  }
  if (!cuda && (flags.device || flags.deterministic)) {
    throw InputError(
        fmt::format("{} needs --backend cuda", flags.device ? "--device N" : "--deterministic"));
  }
}

}  // namespace

void add_machine_flags(Options& options, MachineFlags& flags, const std::string& host_memory) {
  options.value("--backend", flags.backend, "cpu, or cuda: one GPU, shared by all ranks")
      .shows_default()
      .one_of({"cpu", "cuda"});
  options.value("--device", flags.device, "cuda only: number of the GPU; default: 0")
      .integer(0, kDevicesMax);
  options.flag("--deterministic", flags.deterministic,
               "cuda only: the same bits on every run, by avoiding library kernels that add in no "
               "fixed order");
  options
      .value("--threads", flags.threads,
             "cpu only: threads of each rank; default: its share of the cores")
      .integer(1, kThreadsMax);
  options.value("--host-memory", flags.host_memory,
                !host_memory.empty()
                    ? host_memory
                    : "memory that this machine can provide, such as 115GiB; default: what it "
                      "reports as free, which is too little on a virtual machine that grows with "
                      "its use");
}

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
  machine.ranks.make_backend = [gpu = machine.gpu.get()](Communicator& communicator) {
    return gpu->make_backend(communicator);
  };
  machine.ranks.deadline = kDeadlineOnGpu;
  return machine;
}

}  // namespace fpdt
