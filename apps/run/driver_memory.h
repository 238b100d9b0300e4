// Device memory of a run as the driver of its GPUs counts it, beside what was predicted.
//
// The driver counts for each whole GPU, so what other programs take shows here too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/cluster.h"

#include "common/command.h"

namespace fpdt {

struct DriverMemory {
  std::int32_t gpu = 0;  // as CUDA counts them
  Bytes arenas;          // of the ranks on this GPU
  Bytes outside;         // predicted beside them; 0: the cluster file says nothing
  Bytes before;          // in use before the ranks began: the context
  Bytes warm, highest;   // after the first step, and after any

  // Call it after a step. `used`: as the driver counts it.
  void note_step(Bytes used);
};
void note_step(std::span<DriverMemory> gpus, std::span<const Bytes> used);

// The memory that `ranks` ranks on one GPU take outside of their arenas, beside page tables: one
// context, and libraries and workspace for each. Ranks of one process have no channels. 0 where the
// cluster file says nothing.
Bytes outside_on_one_gpu(const OutsideArena& outside, std::int64_t ranks);
// The same for a rank that is a process, with the communicators that it has: of each lane, of each
// all-gather across nodes, and of messages between steps. nodes[r]: the host of rank r.
Bytes outside_of_process(const OutsideArena& outside, const Schedule& schedule, std::int64_t rank,
                         std::span<const std::int64_t> nodes);

// The reasons to end a run with exit code 4, in words: memory that was taken after the first step.
// The prediction of what libraries and peers take before is an estimate, so a deviation from it is
// only reported.
std::vector<std::string> deviations(const DriverMemory& memory);
// Whether nothing was taken after the first step, and all of it is at most the prediction and
// within 1 % of it (256 MiB for arenas up to 32 GiB), where there is one. Before the first step:
// yes.
bool agrees(const DriverMemory& memory);

std::string table(const DriverMemory& memory);
Json json(const DriverMemory& memory);

// The same for the GPUs of a process. One GPU has its own texts and JSON. With several, texts say
// which GPU they mean, and the JSON is {"gpus":[...],"as_predicted":...}. With none there is no
// text, and the JSON is null.
std::vector<std::string> deviations(std::span<const DriverMemory> gpus);
std::string table(std::span<const DriverMemory> gpus);
Json json(std::span<const DriverMemory> gpus);

}  // namespace fpdt
