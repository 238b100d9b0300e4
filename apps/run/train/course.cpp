// Flags over checkpoint over defaults.
#include "run/train/course.h"

#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/train/inputs.h"

namespace fpdt {
namespace {

LearningRate settle_rate(const TrainFlags& flags, const LearningRate& before) {
  LearningRate rate;
  rate.peak = flags.learning_rate.value_or(before.peak);
  rate.minimum = flags.min_learning_rate.value_or(before.minimum);
  rate.warmup = flags.warmup.value_or(before.warmup);
  if (!std::isfinite(rate.peak) || !(rate.minimum <= rate.peak)) {
    throw InputError(
        "--learning-rate: expected a finite number that is at least --min-learning-rate");
  }
  if (rate.minimum >= 0) {
    rate.steps = flags.decay_steps.value_or(before.steps > 0 ? before.steps : flags.steps);
  } else if (flags.decay_steps) {
    throw InputError("--decay-steps needs --min-learning-rate, which is reached there");
  }
  return rate;
}

}  // namespace

Course settle_course(const TrainFlags& flags, const Job& job, const std::optional<Course>& saved) {
  Course course = saved.value_or(Course{});
  if (!flags.data_format.empty()) course.data_format = flags.data_format;
  course.document_separator =
      flags.separator.value_or(static_cast<std::int32_t>(course.document_separator));
  course.seed = flags.seed.value_or(course.seed);
  course.rate = settle_rate(flags, course.rate);
  course.seq_len = job.problem.seq_len;
  course.sequences = TokenLayout(job.schedule.schedule()).sequences();
  course.optimizer = job.problem.optimizer;
  return course;
}

// Together: the identity of a file that the first process reads. The others hear of it after every
// gigabyte, since they would give up a process that is silent for as long as a large file takes.
std::string identity(World& world, const std::string& path) {
  constexpr std::int64_t kTurn = std::int64_t{1} << 30;
  if (path.empty()) return "";
  std::optional<Identity> file;
  const std::string turns = broadcast(world,
                                      agreed(world,
                                             [&] {
                                               if (!world.speaks()) return std::string();
                                               file.emplace(path);
                                               return std::to_string(div_ceil(file->left(), kTurn));
                                             }),
                                      0);
  for (std::int64_t i = std::stoll(turns); i > 0; --i) {
    agree(world, [&] {
      if (file) file->read(kTurn);
    });
  }
  return broadcast(world, file ? file->text() : "", 0);
}

void add_data(World& world, Course& course, const TrainFlags& flags, const Batches& data) {
  course.data_format = word(data.tokens().format());
  if (flags.save.empty() && flags.resume.empty()) return;
  course.data = identity(world, flags.data);
  course.loss_mask = identity(world, flags.loss_mask);
}

std::vector<std::string> allowed_changes(const TrainFlags& flags, const Course& saved,
                                         const Course& now) {
  std::vector<std::string> changes = differences(saved, now);
  if (changes.empty() || flags.allow_changes) return changes;
  throw InputError(fmt::format(
      "{}: this run would differ from the one that wrote the checkpoint:\n  {}\nomitted flags keep "
      "their values; --allow-changes continues anyway",
      flags.resume, fmt::join(changes, "\n  ")));
}

}  // namespace fpdt
