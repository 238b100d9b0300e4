// The loop over steps, and what is said about it.
#include "run_train.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/json.h"
#include "fpdt/io/model_file.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/schedule/print.h"
#include "fpdt/train/checkpoint.h"

#include "command.h"
#include "memory_report.h"
#include "progress.h"
#include "step_times.h"
#include "train_course.h"

namespace fpdt {
namespace {

// The log: a line a step, there when the step is done.
class Log {
 public:
  explicit Log(const std::string& path) : path_(path) {
    if (path.empty()) return;
    // A pipe that nobody reads is an error, not a wait; later writes to it may wait.
    const int opened = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC,
                              S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
    require(opened >= 0 && ::fcntl(opened, F_SETFL, O_APPEND) == 0);
    file_.reset(::fdopen(opened, "a"));
    require(file_ != nullptr);
  }
  void write(const std::string& line) {
    if (file_ == nullptr) return;
    require(std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size());
    require(std::fflush(file_.get()) == 0);
  }

 private:
  void require(bool good) const {
    if (!good) throw IoError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

void require_sensible(const TrainFlags& flags) {
  if (!flags.init.empty() && !flags.resume.empty()) {
    throw InputError(
        "--init and --resume: a run starts from weights or goes on from a checkpoint, not both");
  }
  if (flags.allow_changes && flags.resume.empty()) {
    throw InputError("--allow-changes needs --resume DIR, from which something changes");
  }
  if (flags.save.empty() && flags.save_every > 0) throw InputError("--save-every needs --save DIR");
  if (flags.evaluate_data.empty() != (flags.evaluate_every == 0)) {
    throw InputError("--evaluate-every N and --evaluate-data FILE need each other");
  }
  if (flags.ranks.communicator == "solo" && !(flags.save.empty() && flags.resume.empty())) {
    throw InputError("--communicator solo: one rank alone holds no whole model to save or resume");
  }
  if (flags.ranks.rank && flags.ranks.communicator != "solo") {
    throw InputError("--rank N needs --communicator solo");
  }
  if (!flags.draw.empty()) {
    if (flags.machine.empty()) throw InputError("--draw FILE needs --machine CLUSTER");
    const auto is = [&](std::string_view end) { return flags.draw.ends_with(end); };
    if (!is(".svg") && !is(".html") && !is(".json")) {
      throw InputError(
          fmt::format("--draw {}: expected a file that ends in .html, .svg or .json", flags.draw));
    }
  }
}

// The directory of --save, ours from now on; none without it.
std::unique_ptr<CheckpointDirectory> open_saves(const TrainFlags& flags, const Job& job) {
  if (flags.save.empty()) return nullptr;
  static_cast<void>(hf_family(job.problem.model));  // which has names for its tensors
  std::error_code ignored;
  const bool resumed = std::filesystem::equivalent(flags.resume, flags.save, ignored);
  return std::make_unique<CheckpointDirectory>(flags.save, resumed);
}

// What the driver of a GPU says before the ranks begin; empty on a CPU.
std::optional<DriverMemory> driver_memory(const TrainFlags& flags, const Job& job,
                                          const RankMachine& machine) {
  if (!machine.gpu) return {};
  const Schedule& schedule = job.schedule.schedule();
  const std::int64_t here = flags.ranks.communicator == "solo" ? 1 : schedule.ranks;
  DriverMemory memory;
  memory.arenas = here * arena_bytes(schedule, MemorySpace::device);
  memory.outside = outside_on_one_gpu(job.problem.cluster.outside, here);
  memory.before = machine.gpu->used_memory();
  return memory;
}

// What the checkpoint to go on from says of its course, if it does.
std::optional<Course> saved_course(const TrainFlags& flags) {
  if (flags.resume.empty()) return {};
  const std::string text = load_progress(flags.resume).course;
  if (text.empty()) return {};
  return parse_course(text, CheckpointDirectory::file(flags.resume, "trainer.json"));
}

class Run {
 public:
  Run(const TrainFlags& flags, const Job& job, const RankMachine& machine)
      : flags_(flags),
        job_(job),
        machine_(machine),
        saved_(saved_course(flags)),
        course_(settle_course(flags, job, saved_)),
        data_(batches(flags.data, flags.loss_mask)),
        saves_(open_saves(flags, job)),
        log_(flags.log),
        driver_(driver_memory(flags, job, machine)),
        trainer_(job.schedule, job.problem, job.strategy,
                 rank_options(flags.ranks, job.schedule.schedule(), machine.ranks)) {
    if (!flags.evaluate_data.empty()) evaluation_.emplace(batches(flags.evaluate_data, ""));
    if (!flags.machine.empty()) times_.emplace(job, flags.machine);
    progress_.schedule = content_hash(print(job.schedule.schedule()));
    progress_.ranks = job.problem.ranks();
    start();
  }

  // Until the last step or a signal; returns the signal.
  int train();
  // Results to standard output; returns how memory deviates from the prediction.
  std::vector<std::string> report(int signal) const;
  // Writes the picture that --draw asks for, when there is a step to draw.
  void draw() const;

 private:
  [[nodiscard]] Batches batches(const std::string& path, const std::string& mask) const {
    return {path,
            job_.problem.model.vocabulary,
            job_.problem.seq_len,
            {static_cast<std::int32_t>(course_.document_separator), mask,
             token_format(flags_.data_format), token_format(saved_ ? saved_->data_format : "")}};
  }
  void start();
  void resume();
  void step();
  void evaluate();
  void save();
  void judge_last_save();
  int take_steps();
  void say_step(const StepResult& result);

  const TrainFlags& flags_;
  const Job& job_;
  const RankMachine& machine_;
  std::optional<Course> saved_;  // of the checkpoint
  Course course_;
  Batches data_;
  std::unique_ptr<CheckpointDirectory> saves_;
  HfCompanions companions_;
  std::optional<Batches> evaluation_;
  Log log_;
  std::optional<DriverMemory> driver_;
  Trainer trainer_;
  Progress progress_;
  StatusLine status_;
  std::optional<StepTimes> times_;
  std::vector<MemoryUse> memory_;
  std::optional<double> first_loss_, evaluation_loss_;
  std::vector<double> losses_;
  StepResult last_;
  std::int64_t steps_here_ = 0, tokens_ = 0, saved_at_ = -1;
  double seconds_ = 0, wall_seconds_ = 0;
};

void Run::resume() {
  const std::vector<std::string> changes =
      saved_ ? allowed_changes(flags_, *saved_, course_) : std::vector<std::string>();
  const Progress found = load_checkpoint(flags_.resume, trainer_);
  if (saves_) companions_ = companions_of(flags_.resume);
  status_.keep(fmt::format("resuming {} after step {}", flags_.resume, found.step));
  if (!saved_) status_.keep("the checkpoint does not say what it was trained on and how");
  for (const std::string& change : changes) status_.keep(change);
  // The cursor counts tokens, which another format cuts otherwise.
  const bool same_tokens =
      !saved_ || (saved_->data == course_.data && saved_->data_format == course_.data_format);
  if (!same_tokens) {
    status_.keep("other data, or another format: they begin at the first token");
  } else if (saved_ && saved_->seq_len != course_.seq_len && !data_.fits(found.cursor)) {
    status_.keep("the rest of the data is shorter than a sequence: they begin again");
  } else {
    data_.seek(found.cursor);
  }
  if (found.schedule != progress_.schedule) {
    status_.keep("the checkpoint is of another schedule: training goes on, not bit for bit");
  }
  if (course_.rate.steps > 0 && flags_.steps > course_.rate.steps) {
    status_.keep(fmt::format("the learning rate stays at {} after step {}, where its decay ends",
                             course_.rate.minimum, course_.rate.steps));
  }
}

void Run::start() {
  add_data(course_, flags_, data_);
  progress_.seed = static_cast<std::uint64_t>(course_.seed);
  progress_.course = print_course(course_);
  if (!flags_.resume.empty()) {
    resume();
  } else if (!flags_.init.empty()) {
    load_weights(flags_.init, trainer_);
    if (saves_) companions_ = companions_of(flags_.init);
    status_.keep(fmt::format("starting from the weights of {}", flags_.init));
    const std::string positions = note_positions(flags_.init, job_.problem.seq_len);
    if (!positions.empty()) status_.keep(positions);
  } else {
    trainer_.set_parameters(initial_parameters(progress_.seed));
  }
  for (const std::string& name : companions_.left_out) {
    status_.keep(fmt::format("{}: too large to go along with checkpoints", name));
  }
  if (times_ && flags_.steps - trainer_.steps_done() == 1) {
    throw InputError(
        "--machine compares a step after the first, and this run has one: more --steps");
  }
  if (trainer_.steps_done() >= flags_.steps) {
    throw InputError(
        fmt::format("--steps {}: {} are done already; --steps counts from the first run",
                    flags_.steps, trainer_.steps_done()));
  }
  if (flags_.ranks.communicator == "solo") {
    status_.keep(
        fmt::format("rank {} of {} alone: memory and times are real, the loss means nothing",
                    flags_.ranks.rank.value_or(0), job_.problem.ranks()));
  }
}

void Run::say_step(const StepResult& result) {
  const double left = wall_seconds_ / static_cast<double>(steps_here_) *
                      static_cast<double>(flags_.steps - result.step);
  const std::string text =
      fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  {:.0f} tokens/s  {} left", result.step,
                  flags_.steps, result.loss, result.grad_norm,
                  static_cast<double>(tokens_) / wall_seconds_, format_clock(left));
  if (result.step == flags_.steps || steps_here_ == 1) {
    status_.keep(text);
  } else {
    status_.show(text);
  }
}

void Run::step() {
  const std::int64_t passed_over = data_.passed_over();
  const std::vector<Sample> samples = data_.next_labelled(trainer_.samples_per_step());
  if (data_.passed_over() > passed_over) {
    status_.keep(fmt::format("before step {}: {} sequences without a label were passed over",
                             trainer_.steps_done() + 1, data_.passed_over() - passed_over));
  }
  const double now = course_.rate.at(trainer_.steps_done() + 1);
  if (steps_here_ == 0) {
    last_ = trainer_.step_measured(samples, now, memory_);
  } else if (times_) {
    std::vector<Trace> traces;
    last_ = trainer_.step_recorded(samples, now, traces);
    times_->keep(std::move(traces));
  } else {
    last_ = trainer_.step(samples, now);
  }
  if (saves_) saves_->confirm();  // loss and norm were finite
  if (driver_) driver_->note_step(machine_.gpu->used_memory());
  ++steps_here_;
  tokens_ += last_.tokens;
  seconds_ += last_.seconds;
  wall_seconds_ += last_.wall_seconds;
  if (!first_loss_) first_loss_ = last_.loss;
  losses_.push_back(last_.loss);
  say_step(last_);
  log_.write(fmt::format(
      "{{\"step\":{},\"loss\":{},\"grad_norm\":{},\"learning_rate\":{},\"tokens\":{},"
      "\"seconds\":{:.6f},\"wall_seconds\":{:.6f}}}\n",
      last_.step, json_number(last_.loss), json_number(last_.grad_norm),
      json_number(last_.learning_rate), last_.tokens, last_.seconds, last_.wall_seconds));
}

// The mean over the labels of the first windows, each of which counts once: a short file is not
// begun again.
void Run::evaluate() {
  evaluation_->seek(0);
  double sum = 0;
  std::int64_t labels = 0;
  const std::int64_t batch = trainer_.samples_per_step();
  const std::int64_t windows = evaluation_->windows();
  const std::int64_t taken =
      std::min(mul(std::min(flags_.evaluate_batches, windows), batch), windows);
  for (std::int64_t left = taken; left > 0;) {
    const std::vector<Sample> samples = evaluation_->next(std::min(batch, left));
    left -= std::ssize(samples);
    const std::int64_t counted = unmasked(samples);
    sum += trainer_.evaluate(samples) * static_cast<double>(counted);
    labels += counted;
  }
  if (labels == 0) {
    return status_.keep(fmt::format("{}: no label among the first {} sequences to evaluate",
                                    flags_.evaluate_data, taken));
  }
  evaluation_loss_ = sum / static_cast<double>(labels);
  status_.keep(fmt::format("step {}  evaluation loss {:.4f} over {} labels", last_.step,
                           *evaluation_loss_, labels));
  log_.write(fmt::format("{{\"step\":{},\"evaluation_loss\":{},\"labels\":{}}}\n", last_.step,
                         json_number(*evaluation_loss_), labels));
}

void Run::save() {
  if (saved_at_ == trainer_.steps_done()) return;
  progress_.step = trainer_.steps_done();
  progress_.cursor = data_.cursor();
  save_checkpoint(*saves_, trainer_, progress_, companions_);
  saved_at_ = progress_.step;
  status_.keep(fmt::format("step {}  saved to {}", progress_.step, flags_.save));
}

// No step of the run follows its last save. Where that would replace an earlier checkpoint, one
// more step is made, of which nothing is kept, unless the run is to stop at once: then the first
// step after --resume judges it.
void Run::judge_last_save() {
  if (!saves_ || !saves_->is_pending()) return;
  if (saved_step(flags_.save)) {
    if (stop_signal() != 0) return;
    trainer_.step(data_.next_labelled(trainer_.samples_per_step()),
                  course_.rate.at(last_.step + 1));
    trainer_.set_steps_done(last_.step);
  }
  saves_->confirm();
}

int Run::train() {
  try {
    return take_steps();
  } catch (const NumericError& error) {
    if (!saves_) throw;
    saves_->reject();
    const std::optional<std::int64_t> kept = saved_step(flags_.save);
    throw NumericError(
        fmt::format("{}; {} {}", error.what(), flags_.save,
                    kept ? fmt::format("keeps step {}", *kept) : "holds no checkpoint"));
  }
}

int Run::take_steps() {
  // A first step of more than a second or two on a few cores is announced; later ones are timed.
  constexpr double kLongStep = 2e11;
  const double work = 6.0 * static_cast<double>(parameter_count(job_.problem.model)) *
                      static_cast<double>(mul(trainer_.samples_per_step(), job_.problem.seq_len));
  if (work > kLongStep && trainer_.steps_done() < flags_.steps) {
    status_.keep(fmt::format("step {} is running, about {:.1f} TFLOP without attention",
                             trainer_.steps_done() + 1, work / 1e12));
  }
  const auto due = [&](std::int64_t every) { return every > 0 && last_.step % every == 0; };
  while (trainer_.steps_done() < flags_.steps && stop_signal() == 0) {
    step();
    if (due(flags_.evaluate_every)) evaluate();
    if (due(flags_.save_every)) save();
  }
  if (saves_ && steps_here_ > 0) save();
  judge_last_save();
  status_.end();
  return stop_signal();
}

void Run::draw() const {
  if (flags_.draw.empty() || !times_ || !times_->measured()) return;
  AtomicFile file(flags_.draw);
  file.write(times_->picture(flags_.draw));
  file.commit();
}

std::vector<std::string> Run::report(int signal) const {
  const MemoryReport memory{memory_,
                            job_.predicted,
                            job_.problem.ranks(),
                            flags_.ranks.communicator == "solo",
                            peak_resident_bytes(),
                            driver_,
                            process_memory()};
  const double rate = wall_seconds_ > 0 ? static_cast<double>(tokens_) / wall_seconds_ : 0;
  if (flags_.json) {
    std::string text = fmt::format(
        "{{\"steps\":{},\"stopped_by_signal\":{},\"first_loss\":{},\"loss\":{},\"evaluation_loss\":"
        "{},"
        "\"tokens\":{},\"seconds\":{:.6f},\"wall_seconds\":{:.6f},\"tokens_per_second\":{:.3f},"
        "\"solo\":{},\"schedule\":{},"
        "\"saved\":{},",
        trainer_.steps_done(), signal, first_loss_ ? json_number(*first_loss_) : "null",
        first_loss_ ? json_number(last_.loss) : "null",
        evaluation_loss_ ? json_number(*evaluation_loss_) : "null", tokens_, seconds_,
        wall_seconds_, rate, memory.solo, json_string(progress_.schedule),
        saved_at_ < 0 ? "null" : json_string(flags_.save));
    const bool timed = times_ && times_->measured();
    std::string losses;
    for (const double loss : losses_) {
      losses += fmt::format("{}{}", losses.empty() ? "" : ",", json_number(loss));
    }
    print_result(
        text + fmt::format("\"losses\":[{}],{},\"time\":{},\"products\":{},\"memory\":{}}}\n",
                           losses, peaks_json(memory), timed ? json(times_->comparison()) : "null",
                           machine_.gpu ? machine_.gpu->products() : "null", json(memory)));
  } else if (first_loss_) {
    const std::string loss = memory.solo
                                 ? "one rank alone, so the loss means nothing"
                                 : fmt::format("loss {:.4f} -> {:.4f}", *first_loss_, last_.loss);
    print_result(fmt::format("{} steps, {} tokens in {} ({:.0f} tokens/s); {}\n\n{}", steps_here_,
                             tokens_, format_clock(wall_seconds_), rate, loss, table(memory)));
    if (times_ && times_->measured()) {
      print_result(fmt::format("\n{}", table(times_->comparison())));
    }
  }
  return deviations(memory);
}

// Safe is proven of any schedule; right only of what the planner writes, by its tests.
std::string unhashed_note(const std::string& path) {
  return fmt::format(
      "note: {} has no hash, so a person or another program wrote or changed it. It is safe to "
      "run; "
      "fpdt-run check tells whether it computes the model\n",
      path);
}

}  // namespace

int run_train(const TrainFlags& flags) {
  const Job job = load_job(flags.schedule);
  if (!job.has_hash) say(unhashed_note(flags.schedule));
  require_sensible(flags);
  const RankMachine machine = open_machine(flags.backend);
  Run run(flags, job, machine);
  catch_stop_signals();
  const int signal = run.train();
  // All results are out before the verdict.
  const std::vector<std::string> deviations = run.report(signal);
  run.draw();
  if (!deviations.empty()) {
    fmt::print(stderr, "fpdt-run: measured and predicted memory disagree: {}\n",
               fmt::join(deviations, "; "));
  }
  if (signal != 0) return 128 + signal;
  return static_cast<int>(deviations.empty() ? ExitCode::done : ExitCode::disagree);
}

}  // namespace fpdt
