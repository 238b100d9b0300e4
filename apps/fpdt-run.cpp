// fpdt-run: executes a schedule. The command line, and nothing else.
#include <memory>

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

constexpr const char* kHostMemory =
    "that this machine can give, such as 115GiB; default: what it says is free, which is too "
    "little where a virtual machine grows with its use";

// Where the ranks run. `host_memory`: help of that flag.
void add_backend(Options& options, MachineFlags& flags, const std::string& host_memory) {
  options.value("--backend", flags.backend, "cpu, or cuda: a GPU, which all ranks share")
      .shows_default()
      .one_of({"cpu", "cuda"});
  options.value("--device", flags.device, "of cuda: its number; default: 0")
      .integer(0, kDevicesMax);
  options.flag(
      "--deterministic", flags.deterministic,
      "of cuda: no kernels of libraries that add in any order; the same bits on every run");
  options.value("--threads", flags.threads, "of cpu, each rank; default: its part of the cores")
      .integer(1, kThreadsMax);
  options.value("--host-memory", flags.host_memory, host_memory);
}

// Of files that do not say it themselves.
void add_data_format(Options& options, std::string& format) {
  options
      .value("--data-format", format,
             "bytes, u16 or u32: the tokens of a file whose name does not say it")
      .one_of({"bytes", "u16", "u32"});
}

void add_train(Options& options, TrainFlags& flags) {
  options.value("schedule", flags.schedule, "schedule file").required();
  options.value("--data", flags.data, "text, .u16, .u32 or llm.c token file (docs/data.md)")
      .required();
  add_data_format(options, flags.data_format);
  options.value("--steps", flags.steps, "stop after this step, counted from the first run")
      .required()
      .integer(1);
  options.value("--init", flags.init,
                "start from the weights of a Hugging Face directory, whose tokenizer and the like "
                "go along with checkpoints");
  options.value("--save", flags.save,
                "directory of the checkpoint, written at the end; other files in it stay");
  options.value("--save-every", flags.save_every, "and after every so many steps").integer(1);
  options.value("--resume", flags.resume,
                "go on from a checkpoint; flags that are left out keep the values of its run");
  options.flag("--allow-changes", flags.allow_changes,
               "of --resume: let flags change the data, the learning rate and the like");
  options.value("--seed", flags.seed, "of the initial weights; default: 1").integer(0);
  options.value("--learning-rate", flags.learning_rate, "at its peak; default: 0.001").positive();
  options
      .value("--min-learning-rate", flags.min_learning_rate,
             "reached at --decay-steps by half a cosine; without it the rate stays")
      .from_zero();
  options
      .value("--decay-steps", flags.decay_steps,
             "step at which the minimum is reached; default: --steps of the first run")
      .integer(1);
  options.value("--warmup", flags.warmup, "steps of linear warm-up; default: 0").integer(0);
  options.value("--evaluate-data", flags.evaluate_data, "tokens that are not trained on");
  options.value("--evaluate-every", flags.evaluate_every, "steps between evaluations").integer(1);
  options.value("--evaluate-batches", flags.evaluate_batches, "steps' worth of tokens in each")
      .shows_default()
      .integer(1);
  options.value("--document-separator", flags.separator, "token that ends a document")
      .integer(0, INT32_MAX);
  options.value("--loss-mask", flags.loss_mask,
                "file of a byte a token; tokens with 0 are not learnt");
  options.value("--log", flags.log, "append a JSON object a step to this file");
  options.value("--machine", flags.machine,
                "cluster file of fpdt-run bench: compare the step with what its rates predict");
  options.value(
      "--draw", flags.draw,
      "with --machine: step.html, step.svg or step.json (Perfetto), measured over predicted");
  add_backend(options, flags.backend, kHostMemory);
  options
      .value("--communicator", flags.ranks.communicator,
             "thread: all ranks in this process; solo: one rank alone, to see what it needs")
      .shows_default()
      .one_of({"thread", "solo"});
  options.value("--rank", flags.ranks.rank, "of solo: the rank that runs alone; default: 0")
      .integer(0);
  options.flag("--json", flags.json, "one JSON object on standard output");
}

void add_check(Options& options, CheckFlags& flags) {
  options.value("schedule", flags.schedule, "schedule file of a small problem").required();
  options.value("--data", flags.data, "tokens of the steps; default: random ones");
  add_data_format(options, flags.data_format);
  options.value("--document-separator", flags.separator, "token that ends a document")
      .integer(0, INT32_MAX);
  options.value("--seed", flags.seed, "of parameters and tokens").shows_default().integer(0);
  options.value("--tolerance", flags.tolerance, "of loss and gradients; default: derived")
      .positive();
  options.flag(
      "--bisect", flags.bisect,
      "check simpler variants too (one rank, one chunk, nothing spilled, ...) and say which "
      "change makes an error go away");
  add_backend(options, flags.backend, kHostMemory);
  options.flag("--json", flags.json, "one JSON object on standard output");
}

void add_bench(Options& options, BenchFlags& flags) {
  options.value("--out", flags.out, "the cluster file to write").required();
  options.value("--name", flags.name, "of the cluster; default: cpu-local or gpu-local");
  options.value("--ranks", flags.ranks, "that run at once, each a device of the cluster")
      .shows_default()
      .integer(1, kRanksMax);
  add_backend(options, flags.backend,
              "of the machine; default: half of what it has; beside a GPU, nine tenths of what is "
              "free");
  options.value("--storage", flags.storage, "of parameters and activations: f32 or bf16")
      .shows_default()
      .one_of({"f32", "bf16"});
  options.value("--device-memory", flags.device_memory,
                "of one rank, such as 8GiB; default: its share of half of the machine's, or of "
                "the GPU's");
  options
      .value("--peak-flops", flags.peak_flops,
             "of the data sheet, the 100 % of MFU; default: of the fastest product")
      .positive();
  options.value("--declared", flags.declared,
                "cluster file whose rates stand in the file until they are measured, and where "
                "they cannot be");
  options.flag("--short", flags.brief, "only the few sizes that are most of a step");
  options.flag("--quick", flags.quick, "small and short: to see that it works, not how fast");
  options.flag("--json", flags.json, "one JSON object on standard output");
}

void add_device(Options& options, DeviceFlags& flags) {
  options.value("--device", flags.device, "as CUDA counts them")
      .shows_default()
      .integer(0, kDevicesMax);
  options.flag("--json", flags.json, "one JSON object on standard output");
}

// Declares the flags of a verb and returns what runs it.
template <class Flags>
Command declare(Options& options, void (*add)(Options&, Flags&), int (*run)(const Flags&)) {
  auto flags = std::make_shared<Flags>();
  add(options, *flags);
  return [flags, run] { return run(*flags); };
}

}  // namespace
}  // namespace fpdt

int main(int count, char** words) {
  using namespace fpdt;
  const Verb verbs[] = {
      {"train", "Train on the tokens of a file",
       [](Options& options) { return declare(options, add_train, run_train); }},
      {"check", "Compare two steps with the reference in double precision",
       [](Options& options) { return declare(options, add_check, run_check); }},
      {"bench", "Measure this machine and write its cluster file",
       [](Options& options) { return declare(options, add_bench, run_bench); }},
      {"device", "Open the GPU of --backend cuda and say what it is",
       [](Options& options) { return declare(options, add_device, run_device); }},
  };
  return run_program(
      "fpdt-run", "Executes schedules: real training steps, chunk by chunk.",
      "Exit codes: 0 done, 1 internal error, 2 bad input, 4 measured and predicted disagree,\n"
      "5 out of memory, 6 a peer died, 7 file system, 8 numeric, 130 and 143 stopped by a signal.",
      verbs, {words, static_cast<std::size_t>(count)});
}
