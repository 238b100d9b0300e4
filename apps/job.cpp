// Loading a job.
#include "job.h"

#include <utility>

#include <fmt/format.h>

#include "fpdt/base/error.h"

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

RankOptions rank_options(const RankFlags& flags, const Schedule& schedule, RankOptions options) {
  if (flags.communicator == "solo") {
    const std::int64_t rank = flags.rank.value_or(0);
    if (rank < 0 || rank >= schedule.ranks) {
      throw InputError(fmt::format("--rank: expected 0 to {}, found {}", schedule.ranks - 1, rank));
    }
    options.solo_rank = rank;
  }
  return options;
}

}  // namespace fpdt
