// The course of a run: what the flags say, what they leave open as in the checkpoint, the rest from
// defaults and schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fpdt/train/batches.h"
#include "fpdt/train/course.h"

#include "job.h"
#include "run_train.h"

namespace fpdt {

// Without the data, which `add_data` adds. InputError when flags contradict each other.
Course settle_course(const TrainFlags& flags, const Job& job, const std::optional<Course>& saved);

// Notes the format of the data and, where a checkpoint is read or written, reads the files through
// for their checksums.
void add_data(Course& course, const TrainFlags& flags, const Batches& data);

// What changes from the checkpoint on, a line each. InputError when something does and the flags do
// not allow it.
std::vector<std::string> allowed_changes(const TrainFlags& flags, const Course& saved,
                                         const Course& now);

}  // namespace fpdt
