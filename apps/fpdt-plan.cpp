// fpdt-plan: from a question to a schedule. Needs no GPU.
#include <CLI/CLI.hpp>

#include "command.h"
#include "flags.h"
#include "plan_lower.h"

namespace fpdt {
namespace {

int run(int count, const char* const* words) {
  CLI::App app{"Plans the training of transformers on very long sequences."};
  app.set_version_flag("--version", FPDT_VERSION);
  app.require_subcommand(1);

  LowerFlags lower;
  CLI::App* lowering =
      app.add_subcommand("lower", "Write the schedule of a strategy: lowered, placed, proven");
  lowering
      ->add_option("--model", lower.model,
                   "models/*.yaml, or a Hugging Face directory or config.json")
      ->required();
  lowering->add_option("--cluster", lower.cluster, "configs/clusters/*.yaml")->required();
  lowering->add_option("--seq-len", lower.seq_len, "tokens of a sequence: 64K, 2M (= 2^21), 100000")
      ->required();
  lowering->add_option("--strategy", lower.strategy, "YAML file; without it, sensible defaults");
  lowering->add_option("--device-budget", lower.device_budget,
                       "such as 60GiB; default: the device's memory");
  lowering->add_option("--host-budget", lower.host_budget,
                       "of one node; default: the node's memory");
  OptimizerSpec& optimizer = lower.optimizer;
  lowering->add_option("--beta1", optimizer.beta1, "of AdamW")->capture_default_str();
  lowering->add_option("--beta2", optimizer.beta2, "of AdamW")->capture_default_str();
  lowering->add_option("--epsilon", optimizer.epsilon, "of AdamW")->capture_default_str();
  lowering->add_option("--weight-decay", optimizer.weight_decay, "of matrices")
      ->capture_default_str();
  lowering->add_option("--clip", optimizer.clip, "global gradient norm; 0: none")
      ->capture_default_str();
  lowering->add_option("--out-dir", lower.out_dir, "receives schedule.json and strategy.yaml")
      ->required();
  lowering->add_flag("--json", lower.json, "summary as one JSON object");

  std::string path;
  bool json = false;
  CLI::App* verifying = app.add_subcommand("verify", "Prove that a schedule file is safe to run");
  verifying->add_option("SCHEDULE", path, "schedule file")->required();
  verifying->add_flag("--json", json, "result as one JSON object");

  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return answer(app, error);
  }
  return lowering->parsed() ? plan_lower(lower) : plan_verify(path, json);
}

}  // namespace
}  // namespace fpdt

int main(int count, char** words) {
  fpdt::prepare_process();
  return fpdt::guarded("fpdt-plan", [&] { return fpdt::run(count, words); });
}
