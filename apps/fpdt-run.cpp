// fpdt-run: executes a schedule. The command line, and nothing else.
#include <CLI/CLI.hpp>

#include "command.h"
#include "flags.h"
#include "run_bench.h"
#include "run_check.h"
#include "run_device.h"
#include "run_train.h"

namespace fpdt {
namespace {

// Of one rank; more than any machine has cores.
constexpr std::int64_t kThreadsMax = 1024;
// Of a bench, which runs them all on this machine.
constexpr std::int64_t kRanksMax = 64;
// More than any machine has GPUs.
constexpr std::int64_t kDevicesMax = 1024;

// Where the ranks run.
void add_backend(CLI::App& app, MachineFlags& flags) {
  app.add_option("--backend", flags.backend, "cpu, or cuda: a GPU, which all ranks share")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--device", flags.device, "of cuda: its number; default: 0")
      ->check(integer_in(0, kDevicesMax));
  app.add_flag(
      "--deterministic", flags.deterministic,
      "of cuda: no kernels of libraries that add in any order; the same bits on every run");
  app.add_option("--threads", flags.threads, "of cpu, each rank; default: its part of the cores")
      ->check(integer_in(1, kThreadsMax));
  app.add_option("--host-memory", flags.host_memory,
                 "that this machine can give, such as 115GiB; default: what it says is free, which "
                 "is too little where a virtual machine grows with its use");
}

// Of files that do not say it themselves.
void add_data_format(CLI::App& app, std::string& format) {
  app.add_option("--data-format", format,
                 "bytes, u16 or u32: the tokens of a file whose name does not say it")
      ->check(CLI::IsMember({"bytes", "u16", "u32"}));
}

void add_train(CLI::App& app, TrainFlags& flags) {
  app.add_option("schedule", flags.schedule, "schedule file")->required();
  app.add_option("--data", flags.data, "text, .u16, .u32 or llm.c token file (docs/data.md)")
      ->required();
  add_data_format(app, flags.data_format);
  app.add_option("--steps", flags.steps, "stop after this step, counted from the first run")
      ->required()
      ->check(integer_in(1));
  app.add_option("--init", flags.init,
                 "start from the weights of a Hugging Face directory, whose tokenizer and the like "
                 "go along with checkpoints");
  app.add_option("--save", flags.save,
                 "directory of the checkpoint, written at the end; other files in it stay");
  app.add_option("--save-every", flags.save_every, "and after every so many steps")
      ->check(integer_in(1));
  app.add_option("--resume", flags.resume,
                 "go on from a checkpoint; flags that are left out keep the values of its run");
  app.add_flag("--allow-changes", flags.allow_changes,
               "of --resume: let flags change the data, the learning rate and the like");
  app.add_option("--seed", flags.seed, "of the initial weights; default: 1")->check(integer_in(0));
  app.add_option("--learning-rate", flags.learning_rate, "at its peak; default: 0.001")
      ->check(positive_number());
  app.add_option("--min-learning-rate", flags.min_learning_rate,
                 "reached at --decay-steps by half a cosine; without it the rate stays")
      ->check(number_from_zero());
  app.add_option("--decay-steps", flags.decay_steps,
                 "step at which the minimum is reached; default: --steps of the first run")
      ->check(integer_in(1));
  app.add_option("--warmup", flags.warmup, "steps of linear warm-up; default: 0")
      ->check(integer_in(0));
  app.add_option("--evaluate-data", flags.evaluate_data, "tokens that are not trained on");
  app.add_option("--evaluate-every", flags.evaluate_every, "steps between evaluations")
      ->check(integer_in(1));
  app.add_option("--evaluate-batches", flags.evaluate_batches, "steps' worth of tokens in each")
      ->capture_default_str()
      ->check(integer_in(1));
  app.add_option("--document-separator", flags.separator, "token that ends a document")
      ->check(integer_in(0, INT32_MAX));
  app.add_option("--loss-mask", flags.loss_mask,
                 "file of a byte a token; tokens with 0 are not learnt");
  app.add_option("--log", flags.log, "append a JSON object a step to this file");
  app.add_option("--machine", flags.machine,
                 "cluster file of fpdt-run bench: compare the step with what its rates predict");
  app.add_option(
      "--draw", flags.draw,
      "with --machine: step.html, step.svg or step.json (Perfetto), measured over predicted");
  add_backend(app, flags.backend);
  app.add_option("--communicator", flags.ranks.communicator,
                 "thread: all ranks in this process; solo: one rank alone, to see what it needs")
      ->capture_default_str()
      ->check(CLI::IsMember({"thread", "solo"}));
  app.add_option("--rank", flags.ranks.rank, "of solo: the rank that runs alone; default: 0")
      ->check(integer_in(0));
  app.add_flag("--json", flags.json, "one JSON object on standard output");
}

void add_check(CLI::App& app, CheckFlags& flags) {
  app.add_option("schedule", flags.schedule, "schedule file of a small problem")->required();
  app.add_option("--data", flags.data, "tokens of the steps; default: random ones");
  add_data_format(app, flags.data_format);
  app.add_option("--document-separator", flags.separator, "token that ends a document")
      ->check(integer_in(0, INT32_MAX));
  app.add_option("--seed", flags.seed, "of parameters and tokens")
      ->capture_default_str()
      ->check(integer_in(0));
  app.add_option("--tolerance", flags.tolerance, "of loss and gradients; default: derived")
      ->check(positive_number());
  app.add_flag(
      "--bisect", flags.bisect,
      "check simpler variants too (one rank, one chunk, nothing spilled, ...) and say which "
      "change makes an error go away");
  add_backend(app, flags.backend);
  app.add_flag("--json", flags.json, "one JSON object on standard output");
}

void add_bench(CLI::App& app, BenchFlags& flags) {
  app.add_option("--out", flags.out, "the cluster file to write")->required();
  app.add_option("--name", flags.name, "of the cluster; default: cpu-local or gpu-local");
  app.add_option("--ranks", flags.ranks, "that run at once, each a device of the cluster")
      ->capture_default_str()
      ->check(integer_in(1, kRanksMax));
  add_backend(app, flags.backend);
  app.add_option("--storage", flags.storage, "of parameters and activations: f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--device-memory", flags.device_memory,
                 "of one rank, such as 8GiB; default: its share of half of the machine's, or of "
                 "the GPU's");
  app.get_option("--host-memory")
      ->description(
          "of the machine; default: half of what it has; beside a GPU, nine tenths of what is "
          "free");
  app.add_option("--peak-flops", flags.peak_flops,
                 "of the data sheet, the 100 % of MFU; default: of the fastest product")
      ->check(positive_number());
  app.add_option("--declared", flags.declared,
                 "cluster file whose rates stand in the file until they are measured, and where "
                 "they cannot be");
  app.add_flag("--short", flags.brief, "only the few sizes that are most of a step");
  app.add_flag("--quick", flags.quick, "small and short: to see that it works, not how fast");
  app.add_flag("--json", flags.json, "one JSON object on standard output");
}

void add_device(CLI::App& app, DeviceFlags& flags) {
  app.add_option("--device", flags.device, "as CUDA counts them")
      ->capture_default_str()
      ->check(integer_in(0, kDevicesMax));
  app.add_flag("--json", flags.json, "one JSON object on standard output");
}

int run(int count, const char* const* words) {
  CLI::App app("Executes schedules: real training steps, chunk by chunk.", "fpdt-run");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 internal error, 2 bad input, 4 measured and predicted disagree,\n"
      "5 out of memory, 6 a peer died, 7 file system, 8 numeric, 130 and 143 stopped by a signal.");
  TrainFlags train;
  CheckFlags check;
  BenchFlags bench;
  DeviceFlags device;
  CLI::App& train_command = *app.add_subcommand("train", "Train on the tokens of a file");
  CLI::App& check_command =
      *app.add_subcommand("check", "Compare two steps with the reference in double precision");
  add_train(train_command, train);
  add_check(check_command, check);
  CLI::App& bench_command =
      *app.add_subcommand("bench", "Measure this machine and write its cluster file");
  add_bench(bench_command, bench);
  CLI::App& device_command =
      *app.add_subcommand("device", "Open the GPU of --backend cuda and say what it is");
  add_device(device_command, device);
  if (const std::optional<int> code = parse(app, count, words)) return *code;
  if (device_command.parsed()) return run_device(device);
  if (bench_command.parsed()) return run_bench(bench);
  return train_command.parsed() ? run_train(train) : run_check(check);
}

}  // namespace
}  // namespace fpdt

int main(int count, char** words) {
  fpdt::prepare_process();
  return fpdt::guarded("fpdt-run", [&] { return fpdt::run(count, words); });
}
