// The help of each flag, and the flags that do not go together.
#include "run/train/flags.h"

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

constexpr std::int64_t kDeadlineMax = 30 * 24 * 3600;

// The flags for records that people and programs read.
void add_record_flags(Options& options, TrainFlags& flags) {
  options.value("--log", flags.log, "Append one JSON object per step to this file");
  options.value("--flight-dir", flags.flight,
                "Directory in which every rank records how far it got, for fpdt-run "
                "explain-failure, and in which all processes but the first log what they say; the "
                "records are removed when the run ends well");
  options.value("--machine", flags.machine,
                "Cluster, a name or a file from fpdt-run bench: compare the measured step with its "
                "prediction");
  options.value("--draw", flags.draw,
                "With --machine: draw the measured step over the predicted one, as .html, .svg, "
                ".png or .json (Perfetto)");
  add_picture_flags(options, flags.look, "--draw");
}

// The flags for how ranks meet.
void add_rank_flags(Options& options, RankFlags& flags) {
  options
      .value("--communicator", flags.communicator,
             "thread: all ranks in this process; mpi: a process for each rank, started by mpirun; "
             "nccl: a process for each rank and GPU, started by torchrun or mpirun; solo: one rank "
             "alone, to see what it needs")
      .shows_default()
      .one_of({"thread", "mpi", "nccl", "solo"});
  options
      .value("--rank", flags.rank, "With --communicator solo: the rank that runs alone; default: 0")
      .integer(0);
  options
      .value(
          "--deadline", flags.deadline,
          "Seconds to wait for other ranks without progress; default: 5 minutes and two predicted "
          "steps; for ranks that share GPUs as threads, a day")
      .integer(1, kDeadlineMax);
  options.flag("--native-sums", flags.native_sums,
               "With --communicator nccl: let NCCL add, in an order that depends on the machines");
}

}  // namespace

void add_train_flags(Options& options, TrainFlags& flags) {
  options.value("schedule", flags.schedule, "Schedule file").required();
  options.value("--data", flags.data, "Text, .u16, .u32 or llm.c token file (see docs/data.md)")
      .required();
  add_data_format(options, flags.data_format, "--data-format", kDataFormat);
  options.value("--steps", flags.steps, "Last step to run, counted from the first run")
      .required()
      .integer(1);
  options.flag("--check-first", flags.check_first,
               "Before the first step, lower the strategy of the schedule for a narrow problem and "
               "compare it with the reference, on CPUs; needs a schedule with a hash");
  options.value("--init", flags.init,
                "Hugging Face directory with the weights to start from; its tokenizer and other "
                "small files are copied to checkpoints");
  options.value(
      "--save", flags.save,
      "Directory of the checkpoint, written at the end; other files in it are left alone");
  options.value("--save-every", flags.save_every, "Also save after every so many steps").integer(1);
  options
      .value("--shard-size", flags.shard_size,
             "Tensor bytes of a file of the checkpoint; more are cut into several files")
      .shows_default();
  options.value("--resume", flags.resume,
                "Checkpoint to continue from; omitted flags keep the values of its run");
  options.flag("--allow-changes", flags.allow_changes,
               "With --resume: allow flags to change the data, the learning rate and so on");
  options.value("--seed", flags.seed, "Seed of the initial weights; default: 1").integer(0);
  options.value("--learning-rate", flags.learning_rate, "Peak learning rate; default: 0.001")
      .positive();
  options
      .value("--min-learning-rate", flags.min_learning_rate,
             "Final learning rate, reached at --decay-steps along half a cosine; default: no decay")
      .from_zero();
  options
      .value("--decay-steps", flags.decay_steps,
             "Step at which the final learning rate is reached; default: --steps of the first run")
      .integer(1);
  options.value("--warmup", flags.warmup, "Steps of linear warm-up; default: 0").integer(0);
  options.value("--evaluate-data", flags.evaluate_data, "Token file to evaluate on");
  add_data_format(options, flags.evaluate_data_format, "--evaluate-data-format",
                  "format of the file to evaluate on; default: what its name says, else that of "
                  "--data-format");
  options.value("--evaluate-every", flags.evaluate_every, "Steps between evaluations").integer(1);
  options
      .value("--evaluate-batches", flags.evaluate_batches,
             "Tokens per evaluation, a multiple of those per step")
      .shows_default()
      .integer(1);
  options.value("--document-separator", flags.separator, "Token that ends a document")
      .integer(0, INT32_MAX);
  options.value("--loss-mask", flags.loss_mask,
                "File with one byte per token: 1, or 0 for a token that is not learnt");
  add_record_flags(options, flags);
  add_machine_flags(options, flags.backend);
  add_rank_flags(options, flags.ranks);
  options.flag("--json", flags.json, "Print one JSON object");
}

void require_sensible(const TrainFlags& flags) {
  if (!flags.init.empty() && !flags.resume.empty()) {
    throw InputError(
        "--init and --resume: a run starts from weights or continues from a checkpoint, not both");
  }
  if (flags.allow_changes && flags.resume.empty()) {
    throw InputError("--allow-changes needs --resume DIR");
  }
  if (flags.save.empty() && flags.save_every > 0) throw InputError("--save-every needs --save DIR");
  if (flags.evaluate_data.empty() != (flags.evaluate_every == 0)) {
    throw InputError("--evaluate-every N and --evaluate-data FILE go together");
  }
  if (!flags.evaluate_data_format.empty() && flags.evaluate_data.empty()) {
    throw InputError("--evaluate-data-format needs --evaluate-data FILE");
  }
  if (flags.ranks.communicator == "solo" && !(flags.save.empty() && flags.resume.empty())) {
    throw InputError(
        "--communicator solo: one rank alone does not hold a whole model to save or resume");
  }
  if (flags.ranks.native_sums && flags.ranks.communicator != "nccl") {
    throw InputError("--native-sums needs --communicator nccl");
  }
  if (flags.ranks.rank && flags.ranks.communicator != "solo") {
    throw InputError("--rank N needs --communicator solo");
  }
  if (flags.draw.empty()) {
    if (!flags.look.sized() && !flags.look.dark()) return;
    throw InputError("--width, --height and --theme need --draw FILE");
  }
  if (flags.machine.empty()) throw InputError("--draw FILE needs --machine CLUSTER");
  if (!names_picture(flags.draw) && !flags.draw.ends_with(".json")) {
    throw InputError(fmt::format(
        "--draw {}: expected a file that ends in .html, .svg, .png or .json", flags.draw));
  }
  require_sensible(flags.look, flags.draw);
}

}  // namespace fpdt
