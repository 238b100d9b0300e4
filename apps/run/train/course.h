// The course of a run: from its flags, then from the checkpoint, then from defaults and schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fpdt/train/batches.h"
#include "fpdt/train/course.h"

#include "run/job.h"
#include "run/train/flags.h"

namespace fpdt {

// The course without the data, which `add_data` adds. InputError when flags contradict each other.
Course settle_course(const TrainFlags& flags, const Job& job, const std::optional<Course>& saved);

// Together: records the format of the data and, where a checkpoint is read or written, the
// checksums of its files, which one process reads to the end.
void add_data(World& world, Course& course, const TrainFlags& flags, const Batches& data);

// The differences from the checkpoint, one line each. InputError when there are some and the flags
// do not allow them.
std::vector<std::string> allowed_changes(const TrainFlags& flags, const Course& saved,
                                         const Course& now);

}  // namespace fpdt
