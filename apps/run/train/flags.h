// The flags of fpdt-run train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/flags.h"
#include "common/picture.h"
#include "run/job.h"
#include "run/machine.h"

namespace fpdt {

struct TrainFlags {
  std::string schedule;
  std::string data;
  std::int64_t steps = 0;  // the step to stop after, counted from the first run
  std::string init;        // directory of weights to start from
  std::string save;        // directory of the checkpoint
  std::string resume;      // checkpoint to continue from
  std::int64_t save_every = 0;
  std::string shard_size = "5GB";  // of the files of a checkpoint
  // The flags that decide the course; absent: as in the checkpoint, or the default of `Course`.
  std::optional<std::int64_t> seed;
  std::optional<double> learning_rate;
  std::optional<double> min_learning_rate;
  std::optional<std::int64_t> warmup;
  std::optional<std::int64_t> decay_steps;  // where the minimum is reached; default: at `steps`
  std::optional<std::int32_t> separator;
  std::string data_format;
  std::string loss_mask;
  bool check_first = false;    // the strategy, before the first step
  bool allow_changes = false;  // of the course, when resuming
  std::string evaluate_data;
  std::string evaluate_data_format;
  std::int64_t evaluate_every = 0;
  std::int64_t evaluate_batches = 4;
  std::string log;      // one JSON object per line
  std::string flight;   // directory of flight records and logs
  std::string machine;  // cluster file whose rates predict the step
  std::string draw;     // picture of the last steps, measured over predicted
  PictureFlags look;    // of that picture
  bool json = false;
  RankFlags ranks;
  MachineFlags backend;
};

void add_train_flags(Options& options, TrainFlags& flags);

// InputError when flags contradict each other.
void require_sensible(const TrainFlags& flags);

}  // namespace fpdt
