// Loading a job.
#include "job.h"

#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/local.h"

namespace fpdt {

Job load_job(const std::string& path) {
  ScheduleFile file = load_schedule_file(path);
  const Prediction predicted = predict(file.problem, file.strategy);
  return {std::move(file), predicted};
}

void add_data_format(Options& options, std::string& format) {
  options
      .value("--data-format", format,
             "bytes, u16 or u32: format of a token file whose name does not say it")
      .one_of({"bytes", "u16", "u32"});
}

int run_together(const RankFlags& flags, const std::string& schedule,
                 const std::function<int(World& world, const Job& job)>& body) {
  const Job job = load_job(schedule);
  const std::int64_t ranks = job.schedule.schedule().ranks;
  if (flags.communicator == "thread") {
    LocalWorld world(ranks);
    return body(world, job);
  }
  const std::int64_t rank = flags.rank.value_or(0);
  if (rank < 0 || rank >= ranks) {
    throw InputError(fmt::format("--rank: expected 0 to {}, found {}", ranks - 1, rank));
  }
  LocalWorld world(rank, ranks);
  return body(world, job);
}

}  // namespace fpdt
