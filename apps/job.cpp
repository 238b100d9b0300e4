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

std::unique_ptr<World> open_world(const RankFlags& flags, const Schedule& schedule) {
  if (flags.communicator == "thread") return std::make_unique<LocalWorld>(schedule.ranks);
  const std::int64_t rank = flags.rank.value_or(0);
  if (rank < 0 || rank >= schedule.ranks) {
    throw InputError(fmt::format("--rank: expected 0 to {}, found {}", schedule.ranks - 1, rank));
  }
  return std::make_unique<LocalWorld>(rank, schedule.ranks);
}

}  // namespace fpdt
