// A run of fpdt-run train, from reading its data to its last save.
//
// Every process of the job has one, and all call its functions together. Process 0 speaks: it
// prints, logs, draws and commits checkpoints.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fpdt/flight/directory.h"
#include "fpdt/train/checkpoint.h"

#include "common/command.h"
#include "common/progress.h"
#include "run/memory_report.h"
#include "run/step_times.h"
#include "run/train/course.h"
#include "run/train/flags.h"

namespace fpdt {

// A line for each step, complete when the step is done.
class Log {
 public:
  // Appends to a file, or to a pipe that somebody reads; "": nowhere. Throws IoError.
  explicit Log(const std::string& path);
  void write(const Json& entry);

 private:
  void require(bool good) const;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

class Run {
 public:
  // Together: reads data and checkpoint, and prepares the ranks. All arguments must outlive the
  // run. Throws InputError when flags, data or checkpoint do not fit.
  Run(const TrainFlags& flags, const Job& job, const RankMachine& machine, World& world,
      FlightDirectory& flight);

  // Trains until the last step or a signal; returns the signal.
  int train();
  // Together: prints results to standard output, and returns how memory deviates from the
  // prediction.
  std::vector<std::string> report(int signal) const;
  // Writes the picture that --draw asks for, when there is a step to draw.
  void draw() const;

 private:
  [[nodiscard]] Batches batches(const std::string& path, const std::string& mask,
                                const FormatOptions& format) const;
  [[nodiscard]] Batches training_batches() const;
  [[nodiscard]] Batches evaluation_batches() const;
  // Sequences of an evaluation.
  [[nodiscard]] std::int64_t evaluated() const;
  void say_data_use();
  // The facts that must be the same in all processes of a run.
  [[nodiscard]] Facts facts() const;
  void start();
  void resume();
  void step();
  void evaluate();
  void save();
  void judge_last_save();
  int take_steps();
  [[nodiscard]] std::vector<std::string> all_deviations(const MemoryReport& memory) const;
  void print_report(const MemoryReport& memory, const Traffic& sent, int signal) const;
  void say_step(const StepResult& result);

  const TrainFlags& flags_;
  const Job& job_;
  const RankMachine& machine_;
  World& world_;
  FlightDirectory& flight_;
  std::optional<Course> saved_;  // of the checkpoint
  Course course_;
  Batches data_;
  std::int64_t shard_bytes_;
  std::unique_ptr<CheckpointDirectory> saves_;
  HfCompanions companions_;
  std::optional<Batches> evaluation_;
  Log log_;
  std::vector<DriverMemory> drivers_;  // of the GPUs of this process
  Trainer trainer_;
  Progress progress_;
  StatusLine status_;
  std::int64_t clock_lead_ = 0;  // over process 0
  std::optional<StepTimes> times_;
  std::vector<MemoryUse> memory_;
  std::optional<double> evaluation_loss_;
  std::vector<double> losses_;  // of the steps of this run
  StepResult last_;
  std::int64_t tokens_ = 0, saved_at_ = -1;
  int signal_ = 0;  // that stopped the run
  double seconds_ = 0, wall_seconds_ = 0;
};

}  // namespace fpdt
