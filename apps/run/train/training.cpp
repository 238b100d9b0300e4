// Reading, training, evaluating, saving.
#include "run/train/training.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/error.h"
#include "fpdt/io/hf_config.h"
#include "fpdt/io/model_file.h"
#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/traces.h"
#include "fpdt/schedule/print.h"

#include "run/train/data_notes.h"

namespace fpdt {
namespace {

// The directory of --save, locked for this run; null without that flag.
std::unique_ptr<CheckpointDirectory> open_saves(const TrainFlags& flags, const Job& job) {
  if (flags.save.empty()) return nullptr;
  static_cast<void>(hf_family(job.problem.model));  // InputError when it has no tensor names
  std::error_code ignored;
  const bool resumed = std::filesystem::equivalent(flags.resume, flags.save, ignored);
  return std::make_unique<CheckpointDirectory>(flags.save, resumed);
}

// The memory that the drivers of GPUs report before the ranks begin; empty on a CPU. `nodes` are
// those of all processes.
std::vector<DriverMemory> driver_memory(const Job& job, const RankMachine& machine,
                                        const Place& place, std::span<const std::int64_t> nodes) {
  if (!machine.gpus) return {};
  const Bytes arena = arena_bytes(job.schedule.schedule(), MemorySpace::device);
  const std::vector<Bytes> used = machine.gpus->used_memory();
  std::vector<DriverMemory> all;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const GpuShare& share = machine.gpus->shares[i];
    DriverMemory& memory = all.emplace_back();
    memory.gpu = share.gpu;
    memory.arenas = share.ranks * arena;
    const OutsideArena& outside = job.problem.cluster.outside;
    const Schedule& schedule = job.schedule.schedule();
    memory.outside = place.processes == 1
                         ? outside_on_one_gpu(outside, share.ranks)
                         : outside_of_process(outside, schedule, place.process, nodes);
    // A GPU maps all that its process pins.
    memory.outside += outside.page_tables(std::ssize(place.present) *
                                          arena_bytes(schedule, MemorySpace::host_pinned));
    memory.before = used[i];
  }
  return all;
}

// Together: the node of each process.
std::vector<std::int64_t> nodes_of(World& world) {
  std::vector<std::int64_t> nodes;
  for (const std::string& node : world.gather(std::to_string(world.place().node))) {
    nodes.push_back(std::stoll(node));
  }
  return nodes;
}

// The course that the checkpoint of --resume records, if it does.
std::optional<Course> saved_course(const TrainFlags& flags) {
  if (flags.resume.empty()) return {};
  const std::string text = load_progress(flags.resume).course;
  if (text.empty()) return {};
  return parse_course(text, CheckpointDirectory::file(flags.resume, "trainer.json"));
}

}  // namespace

Log::Log(const std::string& path) : path_(path) {
  if (path.empty()) return;
  // Opening a pipe that nobody reads fails instead of waiting; later writes may wait.
  const int opened = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC,
                            S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
  require(opened >= 0 && ::fcntl(opened, F_SETFL, O_APPEND) == 0);
  file_.reset(::fdopen(opened, "a"));
  require(file_ != nullptr);
}

void Log::write(const Json& entry) {
  if (file_ == nullptr) return;
  const std::string line = json_line(entry);
  require(std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size());
  require(std::fflush(file_.get()) == 0);
}

void Log::require(bool good) const {
  if (!good) throw IoError(fmt::format("{}: {}", path_, std::strerror(errno)));
}

Run::Run(const TrainFlags& flags, const Job& job, const RankMachine& machine, World& world,
         FlightDirectory& flight)
    : flags_(flags),
      job_(job),
      machine_(machine),
      world_(world),
      flight_(flight),
      saved_(agreed(world, [&] { return saved_course(flags); })),
      course_(agreed(world, [&] { return settle_course(flags, job, saved_); })),
      data_(agreed(world, [&] { return training_batches(); })),
      shard_bytes_(
          agreed(world, [&] { return parse_size("--shard-size", flags.shard_size).value; })),
      saves_(agreed(world, [&] { return world.speaks() ? open_saves(flags, job) : nullptr; })),
      log_(agreed(world, [&] { return Log(world.speaks() ? flags.log : ""); })),
      drivers_(agreed(world,
                      [&, nodes = nodes_of(world)] {
                        return driver_memory(job, machine, world.place(), nodes);
                      })),
      trainer_(job.schedule, job.problem, machine.ranks),
      status_(world.speaks() || flight.logs() ? StatusLine::Shown::everywhere
                                              : StatusLine::Shown::nowhere) {
  agree(world, [&] {
    if (!flags.evaluate_data.empty()) evaluation_.emplace(evaluation_batches());
    if (!flags.machine.empty() && world.speaks()) times_.emplace(job, flags.machine);
  });
  progress_.schedule = content_hash(print(job.schedule.schedule()));
  progress_.ranks = job.problem.ranks();
  if (!flags.machine.empty()) clock_lead_ = clock_lead(world);
  start();
}

Batches Run::batches(const std::string& path, const std::string& mask,
                     const FormatOptions& format) const {
  return {path,
          job_.problem.model.vocabulary,
          job_.problem.seq_len,
          {static_cast<std::int32_t>(course_.document_separator), mask, format}};
}

Batches Run::training_batches() const {
  return batches(
      flags_.data, flags_.loss_mask,
      {token_format(flags_.data_format), token_format(saved_ ? saved_->data_format : "")});
}

// The name and the magic of the evaluation file count for more than the format of the training
// data.
Batches Run::evaluation_batches() const {
  const std::string& usual =
      !flags_.data_format.empty() || !saved_ ? flags_.data_format : saved_->data_format;
  return batches(
      flags_.evaluate_data, "",
      {token_format(flags_.evaluate_data_format), token_format(usual), "--evaluate-data-format"});
}

// Facts of the files that flags name, and of the course. The flags themselves are the same (job.h).
Facts Run::facts() const {
  Facts facts{{"schedule", progress_.schedule}};
  for (const auto& [name, path] :
       {std::pair("--data", flags_.data), std::pair("--loss-mask", flags_.loss_mask),
        std::pair("--evaluate-data", flags_.evaluate_data)}) {
    if (!path.empty()) facts.emplace_back(name, sample_of(path));
  }
  for (auto& fact : facts_of(course_)) facts.push_back(std::move(fact));
  return facts;
}

void Run::resume() {
  const auto changes = agreed(world_, [&] {
    return saved_ ? allowed_changes(flags_, *saved_, course_) : std::vector<std::string>();
  });
  const Progress found = load_checkpoint(flags_.resume, trainer_);
  std::error_code ignored;
  const bool same = std::filesystem::equivalent(flags_.resume, flags_.save, ignored);
  if (saves_) companions_ = companions_of(flags_.resume, same);
  status_.keep(fmt::format("resuming {} after step {}", flags_.resume, found.step));
  if (!saved_) status_.keep("the checkpoint does not record what it was trained on or how");
  for (const std::string& change : changes) status_.keep(change);
  // The cursor counts tokens, which another format delimits differently.
  const bool same_tokens =
      !saved_ || (saved_->data == course_.data && saved_->data_format == course_.data_format);
  if (!same_tokens) {
    status_.keep("the data or its format changed: starting at the first token");
  } else if (saved_ && saved_->seq_len != course_.seq_len && !data_.fits(found.cursor)) {
    status_.keep("the rest of the data is shorter than a sequence: starting over");
  } else {
    agree(world_, [&] { data_.seek(found.cursor); });
  }
  if (found.schedule != progress_.schedule) {
    status_.keep("another schedule wrote the checkpoint: training continues, but not bit for bit");
  }
  if (course_.rate.steps > 0 && flags_.steps > course_.rate.steps) {
    status_.keep(fmt::format("the learning rate stays at {} after step {}, where its decay ends",
                             course_.rate.minimum, course_.rate.steps));
  }
}

void Run::start() {
  flight_.enter(FlightPhase::loading, 0);
  add_data(world_, course_, flags_, data_);
  if (world_.place().processes > 1) {
    require_same(world_, agreed(world_, [&] { return facts(); }));
  }
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
  if (const std::vector<std::string>& names = companions_.left_out; !names.empty()) {
    status_.keep(
        fmt::format("{}{}: too large or too many to be copied to checkpoints", names.front(),
                    names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : ""));
  }
  if (times_ && flags_.steps - trainer_.steps_done() == 1) {
    throw InputError(
        "--machine compares a step after the first, but this run has only one: raise --steps");
  }
  if (trainer_.steps_done() >= flags_.steps) {
    throw InputError(
        fmt::format("--steps {}: {} are already done; --steps counts from the first run",
                    flags_.steps, trainer_.steps_done()));
  }
  say_data_use();
  if (flags_.ranks.communicator == "solo") {
    status_.keep(
        fmt::format("rank {} of {} alone: memory and times are real, the loss means nothing",
                    flags_.ranks.rank.value_or(0), job_.problem.ranks()));
  }
}

void Run::say_step(const StepResult& result) {
  const double left = wall_seconds_ / static_cast<double>(losses_.size()) *
                      static_cast<double>(flags_.steps - result.step);
  const std::string text = fmt::format(
      "step {}/{}  loss {:.4f}{}  norm {:.3f}  {:.0f} tokens/s  {} left", result.step, flags_.steps,
      result.loss, result.balance > 0 ? fmt::format(" (balance {:.4f})", result.balance) : "",
      result.grad_norm, static_cast<double>(tokens_) / wall_seconds_, format_clock(left));
  if (result.step == flags_.steps || losses_.size() == 1) {
    status_.keep(text);
  } else {
    status_.show(text);
  }
}

void Run::step() {
  flight_.enter(FlightPhase::training, trainer_.steps_done() + 1);
  const std::int64_t passed_over = data_.passed_over();
  const std::vector<Sample> samples =
      data_.next_labelled(trainer_.samples_per_step(), trainer_.needs());
  if (data_.passed_over() > passed_over) {
    status_.keep(fmt::format("before step {}: skipped {} sequences without a label",
                             trainer_.steps_done() + 1, data_.passed_over() - passed_over));
  }
  const double now = course_.rate.at(trainer_.steps_done() + 1);
  if (losses_.empty()) {
    last_ = trainer_.step_measured(samples, now, memory_);
  } else if (!flags_.machine.empty()) {
    std::vector<Trace> traces;
    last_ = trainer_.step_recorded(samples, now, traces);
    traces = gathered(world_, std::move(traces), clock_lead_);
    if (times_) times_->keep(std::move(traces));
  } else {
    last_ = trainer_.step(samples, now);
  }
  if (saves_) saves_->confirm();  // loss and norm were finite
  if (machine_.gpus) note_step(drivers_, machine_.gpus->used_memory());
  tokens_ += last_.tokens;
  seconds_ += last_.seconds;
  wall_seconds_ += last_.wall_seconds;
  losses_.push_back(last_.loss);
  say_step(last_);
  Json entry{{"step", last_.step},
             {"loss", last_.loss},
             {"grad_norm", last_.grad_norm},
             {"learning_rate", last_.learning_rate},
             {"tokens", last_.tokens},
             {"seconds", last_.seconds},
             {"wall_seconds", last_.wall_seconds}};
  if (job_.problem.model.balances()) entry["balance"] = last_.balance;
  log_.write(entry);
}

std::int64_t Run::evaluated() const {
  const std::int64_t windows = evaluation_->windows();
  return std::min(mul(std::min(flags_.evaluate_batches, windows), trainer_.samples_per_step()),
                  windows);
}

void Run::say_data_use() {
  const TrainingUse training{trainer_.steps_done() + 1, flags_.steps, trainer_.samples_per_step()};
  for (const std::string& note : notes_on(data_, training)) status_.keep(note);
  if (!evaluation_) return;
  const EvaluationUse evaluation{flags_.steps, flags_.evaluate_every, evaluated()};
  for (const std::string& note : notes_on(*evaluation_, evaluation)) status_.keep(note);
}

// The mean over the labels of the first windows. Each counts once: a short file is not repeated.
void Run::evaluate() {
  flight_.enter(FlightPhase::evaluating, last_.step);
  evaluation_->seek(0);
  double sum = 0;
  std::int64_t labels = 0;
  const std::int64_t batch = trainer_.samples_per_step();
  const std::int64_t taken = evaluated();
  for (std::int64_t left = taken; left > 0;) {
    const std::vector<Sample> samples = evaluation_->next(std::min(batch, left), trainer_.needs());
    left -= std::ssize(samples);
    const std::int64_t counted = trainer_.labels(samples);
    sum += trainer_.evaluate(samples) * static_cast<double>(counted);
    labels += counted;
  }
  if (labels == 0) {
    return status_.keep(fmt::format("{}: the first {} sequences have no label to evaluate",
                                    flags_.evaluate_data, taken));
  }
  evaluation_loss_ = sum / static_cast<double>(labels);
  status_.keep(fmt::format("step {}  evaluation loss {:.4f} over {} labels", last_.step,
                           *evaluation_loss_, labels));
  log_.write({{"step", last_.step}, {"evaluation_loss", *evaluation_loss_}, {"labels", labels}});
}

void Run::save() {
  if (saved_at_ == trainer_.steps_done()) return;
  flight_.enter(FlightPhase::saving, trainer_.steps_done());
  progress_.step = trainer_.steps_done();
  progress_.cursor = data_.cursor();
  save_checkpoint(saves_.get(), trainer_, progress_, companions_, shard_bytes_);
  saved_at_ = progress_.step;
  status_.keep(fmt::format("step {}  saved to {}", progress_.step, flags_.save));
}

// A save counts once the step after it was finite. The last save has no such step. If it would
// replace an earlier checkpoint, one more step is taken and thrown away. A run that was told to
// stop leaves the verdict to the first step after --resume.
void Run::judge_last_save() {
  const bool replaces = saves_ && saves_->is_pending() && saved_step(flags_.save);
  signal_ = static_cast<int>(largest(world_, stop_signal()));
  if (largest(world_, replaces ? 1 : 0) != 0) {
    if (signal_ != 0) return;
    flight_.enter(FlightPhase::training, last_.step + 1);
    trainer_.step(data_.next_labelled(trainer_.samples_per_step(), trainer_.needs()),
                  course_.rate.at(last_.step + 1));
    trainer_.set_steps_done(last_.step);
  }
  if (saves_) saves_->confirm();
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
  // A first step that takes more than a second or two on a few cores is announced.
  constexpr double kLongStep = 2e11;
  const double work = 6.0 * static_cast<double>(active_parameter_count(job_.problem.model)) *
                      static_cast<double>(mul(trainer_.samples_per_step(), job_.problem.seq_len));
  if (work > kLongStep && trainer_.steps_done() < flags_.steps) {
    status_.keep(fmt::format("step {} is running: about {:.1f} TFLOP without attention",
                             trainer_.steps_done() + 1, work / 1e12));
  }
  const auto due = [&](std::int64_t every) { return every > 0 && last_.step % every == 0; };
  // A signal to any process stops all of them after the same step.
  const auto stopped = [&] { return signal_ = static_cast<int>(largest(world_, stop_signal())); };
  while (trainer_.steps_done() < flags_.steps && stopped() == 0) {
    step();
    if (due(flags_.evaluate_every)) evaluate();
    if (due(flags_.save_every)) save();
  }
  if (!flags_.save.empty() && !losses_.empty()) save();
  judge_last_save();
  status_.end();
  return signal_;
}

}  // namespace fpdt
