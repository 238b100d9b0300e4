// The step that a cluster's rates predict, and the steps that were measured.
#pragma once

#include <string>
#include <vector>

#include "fpdt/report/compare.h"
#include "fpdt/trace/trace.h"

#include "common/picture.h"
#include "run/job.h"

namespace fpdt {

class StepTimes {
 public:
  // Simulates one step of the job on the machine of a cluster file. InputError when its rates are
  // missing, or were measured with another number of ranks. The job outlives it.
  StepTimes(const Job& job, const std::string& cluster_path);

  // The traces of a step, of each rank; the last few steps are kept.
  void keep(std::vector<Trace> traces);

  [[nodiscard]] bool measured() const { return !steps_.empty(); }
  // Compares the prediction with the kept step of median time. Precondition: measured().
  [[nodiscard]] Comparison comparison() const;
  // Writes the same step, all ranks on one clock below what was predicted: a picture, or a Chrome
  // trace where `path` ends in .json. Precondition: measured().
  void draw(const std::string& path, const PictureFlags& look) const;

 private:
  [[nodiscard]] const std::vector<Trace>& middle() const;

  const Job& job_;
  const Schedule& schedule_;
  Trace predicted_;
  std::vector<std::vector<Trace>> steps_;
};

}  // namespace fpdt
