// Runs the pipeline, with one edge removed when asked to. Built with ThreadSanitizer: a missing
// edge is a data race between two lanes, and its report is what the test looks for.
#include <iostream>
#include <string>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/executor.h"

#include "tiny.h"

// missing_edge [op]: the op whose edges are removed.
int main(int count, char** arguments) {
  fpdt::Pipeline pipeline{.ranks = 2, .chunks = 8, .rows = 32, .width = 32};
  fpdt::VerifiedSchedule schedule = pipeline.build();
  const std::string victim = count > 1 ? arguments[1] : "";
  // What runs is then no longer what was verified: that is the point. The object itself is not
  // const.
  for (fpdt::Op& op : const_cast<fpdt::Schedule&>(schedule.schedule()).blocks[0].ops) {
    if (op.name == victim) op.after.clear();
  }
  fpdt::run_ranks(2, [&](fpdt::Communicator& communicator) {
    fpdt::CpuBackend backend(communicator, {.threads = 1});
    fpdt::Executor executor(schedule, backend, communicator);
    pipeline.fill(communicator.rank(), [&](fpdt::BufferIndex buffer, std::int64_t slot) {
      return executor.slot(buffer, slot);
    });
    for (int step = 0; step < 5; ++step) executor.run(schedule.schedule().train);
  });
  std::cout << "complete\n";
}
