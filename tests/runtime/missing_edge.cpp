// Runs the pipeline, with one edge removed when asked to. Built with ThreadSanitizer: a missing
// edge is a data race between two lanes, and the test looks for its report.
#include <iostream>
#include <string>

#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/executor.h"

#include "tiny.h"

// Usage: missing_edge [op]. Removes the edges of that op.
int main(int count, char** arguments) {
  fpdt::Pipeline pipeline{.ranks = 2, .chunks = 8, .rows = 32, .width = 32};
  fpdt::VerifiedSchedule schedule = pipeline.build();
  const std::string victim = count > 1 ? arguments[1] : "";
  // Changes the verified schedule on purpose. The object itself is not const.
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
