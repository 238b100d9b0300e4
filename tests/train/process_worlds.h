// The processes of a job as threads of a test: each has a World of its own, and one rank.
//
//   const auto errors = run_processes(4, [&](World& world, const Connect& connect) {
//     Rig rig(one, in_process(world, connect));
//     ...
//   });
//
// Messages are rendezvous: `send` returns when its receiver has the bytes. So a test hangs up to
// the deadline where real processes might hang, however much the transport would buffer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fpdt/base/error.h"
#include "fpdt/runtime/world.h"
#include "fpdt/train/ranks.h"

namespace fpdt {

// What one process does. The ranks that it connects end before it does.
using ProcessMain = std::function<void(World& world, const Connect& connect)>;

// Runs process_main in each of the processes, on a thread of its own. A process that throws fails
// for all of them, as a program does. Returns when all have left: what each threw, by process.
// `deadline` is for each wait for another process.
std::vector<std::optional<Error>> run_processes(
    std::int64_t processes, const ProcessMain& process_main,
    std::chrono::milliseconds deadline = std::chrono::minutes(1));

// Options of the ranks of one process: a thread for each rank.
RankOptions in_process(World& world, const Connect& connect);

}  // namespace fpdt
