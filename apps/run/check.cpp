// fpdt-run check: two steps of any small schedule against the reference; with --bisect also of
// simpler variants, to find the choice that breaks it.
#include "fpdt/check/check.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/error.h"
#include "fpdt/check/bisect.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/plan/lower.h"
#include "fpdt/train/inputs.h"

#include "common/command.h"
#include "common/progress.h"
#include "run/job.h"
#include "run/machine.h"
#include "run/verbs.h"

namespace fpdt {
namespace {

struct CheckFlags {
  std::string schedule;
  std::string data;  // token file; "": random tokens
  std::string data_format;
  std::int32_t separator = -1;
  std::uint64_t seed = 1;
  double tolerance = 0;  // 0: derived
  bool bisect = false;
  MachineFlags backend;
  bool json = false;
};

// How a schedule that stores bf16 rounds, after the errors of its ops in f32.
std::string storage_text(const StorageCheck& storage) {
  if (!storage.first_difference.empty()) {
    return fmt::format("stored in bf16: {} did not write the bits of the same op in f32, rounded\n",
                       storage.first_difference);
  }
  if (storage.tolerance == 0) {
    return "stored in bf16: each op wrote the bits of the same op in f32, rounded\n";
  }
  return fmt::format(
      "stored in bf16: largest error {:.1e}, tolerance {:.1e}, which is twice the error on CPUs\n",
      storage.error, storage.tolerance);
}

std::string table(const CheckReport& report) {
  std::string text = fmt::format("loss {:.7f}, reference {:.7f}, relative error {:.1e}\n",
                                 report.loss, report.reference_loss, report.loss_error);
  text += fmt::format("loss after the update: relative error {:.1e}; gradient norm: {:.1e}\n",
                      report.evaluate_error, report.grad_norm_error);
  text += "\nlargest error, relative to the tensor's largest element\n";
  text += fmt::format("{:<32} {:>10} {:>10} {:>10} {:>10}\n", "tensor", "gradient", "parameter",
                      "moment1", "moment2");
  for (const TensorCheck& tensor : report.tensors) {
    const std::string amplified =
        tensor.tolerance > report.tolerance
            ? fmt::format("  {:.1e} allowed: rounding is amplified", tensor.tolerance)
            : "";
    text += fmt::format("{:<32} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}{}{}\n", tensor.tensor,
                        tensor.gradient, tensor.parameter, tensor.moment1, tensor.moment2,
                        tensor.agrees ? "" : "  disagrees", amplified);
  }
  text += fmt::format("{:<32} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}\n", "tolerance",
                      report.tolerance, kUpdateTolerance, kUpdateTolerance, kUpdateTolerance);
  if (report.storage) text += storage_text(*report.storage);
  text += report.agrees() ? "\nThe schedule agrees with the reference.\n"
                          : "\nThe schedule disagrees with the reference.\n";
  return text;
}

Json json(const StorageCheck& storage) {
  return {{"agrees", storage.agrees()},
          {"first_difference", storage.first_difference},
          {"error", storage.error},
          {"tolerance", storage.tolerance}};
}

Json json(const CheckReport& report) {
  Json tensors = Json::array();
  for (const TensorCheck& tensor : report.tensors) {
    tensors.push_back({{"tensor", tensor.tensor},
                       {"gradient", tensor.gradient},
                       {"tolerance", tensor.tolerance},
                       {"parameter", tensor.parameter},
                       {"moment1", tensor.moment1},
                       {"moment2", tensor.moment2},
                       {"agrees", tensor.agrees}});
  }
  return {{"agrees", report.agrees()},
          {"loss", report.loss},
          {"reference_loss", report.reference_loss},
          {"loss_error", report.loss_error},
          {"evaluate_error", report.evaluate_error},
          {"grad_norm_error", report.grad_norm_error},
          {"tolerance", report.tolerance},
          {"update_tolerance", kUpdateTolerance},
          {"storage", report.storage ? json(*report.storage) : Json()},
          {"tensors", tensors}};
}

std::string_view verdict(const Trial& trial) {
  return trial.agrees() ? "agrees" : trial.ran ? "disagrees" : "cannot run";
}

double largest_gradient_error(const CheckReport& report) {
  double largest = 0;
  for (const TensorCheck& tensor : report.tensors) largest = std::max(largest, tensor.gradient);
  return largest;
}

// In the order in which they were checked.
std::vector<const Trial*> trials(const Bisection& found) {
  std::vector<const Trial*> all{&found.schedule, &found.lowered_again};
  for (const Trial& trial : found.variants) all.push_back(&trial);
  return all;
}

std::string table(const Bisection& found) {
  std::string text =
      fmt::format("{:<40} {:>10} {:>10}\n", "one change at a time", "gradient", "tolerance");
  for (const Trial* trial : trials(found)) {
    if (trial->report) {
      text += fmt::format("{:<40} {:>10.1e} {:>10.1e}  {}\n", trial->change,
                          largest_gradient_error(*trial->report), trial->report->tolerance,
                          verdict(*trial));
    } else {
      text += fmt::format("{:<40} {:>10} {:>10}  {}: {}\n", trial->change, "-", "-",
                          verdict(*trial), trial->failure);
    }
  }
  return fmt::format("{}\n{}\n", text, found.conclusion());
}

Json json(const Bisection& found) {
  Json list = Json::array();
  for (const Trial* trial : trials(found)) {
    list.push_back(
        {{"change", trial->change},
         {"gradient", trial->report ? Json(largest_gradient_error(*trial->report)) : Json()},
         {"tolerance", trial->report ? Json(trial->report->tolerance) : Json()},
         {"verdict", verdict(*trial)},
         {"failure", trial->failure}});
  }
  return {{"trials", list}, {"conclusion", found.conclusion()}};
}

CheckOptions options_of(const CheckFlags& flags, const Job& job) {
  CheckOptions options;
  options.seed = flags.seed;
  options.tolerance = flags.tolerance;
  if (flags.data.empty()) return options;
  options.samples = [&flags, documents = job.problem.documents](const Problem& problem,
                                                                std::int64_t count) {
    // A variant with one document per sequence takes the separator for any other token.
    const bool joined = documents && !problem.documents;
    Batches batches(flags.data, problem.model.vocabulary, problem.seq_len,
                    {joined ? -1 : flags.separator, "", token_format(flags.data_format)});
    CheckSamples samples;
    for (std::vector<Sample>& one : samples) one = batches.next_labelled(count);
    return samples;
  };
  return options;
}

// Returns the exit code: 4 when something disagrees.
int run_check(const CheckFlags& flags) {
  const Job job = load_job(flags.schedule);
  const RankMachine machine = open_machine(flags.backend, job.problem.ranks());
  CheckOptions options = options_of(flags, job);
  options.ranks = machine.ranks;
  const std::int64_t tokens =
      mul(TokenLayout(job.schedule.schedule()).sequences(), job.problem.seq_len);
  say(fmt::format("two steps of {} tokens on {} ranks, and the reference in double precision ...\n",
                  tokens, job.problem.ranks()));
  if (!flags.bisect) {
    const CheckReport report = check_schedule(job.schedule, job.problem, options);
    print_result(flags.json ? json_line(json(report)) : table(report));
    return static_cast<int>(report.agrees() ? ExitCode::done : ExitCode::disagree);
  }
  StatusLine status;
  const Lowering lowering = [](const Problem& problem, const Strategy& strategy) {
    return lower(problem, strategy, print_problem(problem, strategy)).schedule;
  };
  const Bisection found =
      bisect(job.schedule, job.problem, job.strategy, options, lowering,
             [&](std::string_view change) { status.show(fmt::format("checking: {}", change)); });
  status.end();
  const std::optional<CheckReport>& report = found.schedule.report;
  if (flags.json) {
    Json text = report ? json(*report) : Json::object({{"agrees", false}});
    text["bisection"] = json(found);
    print_result(json_line(text));
  } else {
    print_result(fmt::format("{}{}", report ? table(*report) + "\n" : "", table(found)));
  }
  return static_cast<int>(found.agrees() ? ExitCode::done : ExitCode::disagree);
}

}  // namespace

Command declare_check(Options& options) {
  auto flags = std::make_shared<CheckFlags>();
  options.value("schedule", flags->schedule, "Schedule file of a small problem").required();
  options.value("--data", flags->data, "Token file for the steps; default: random tokens");
  add_data_format(options, flags->data_format, "--data-format", kDataFormat);
  options.value("--document-separator", flags->separator, "Token that ends a document")
      .integer(0, INT32_MAX);
  options.value("--seed", flags->seed, "Seed of parameters and random tokens")
      .shows_default()
      .integer(0);
  options
      .value("--tolerance", flags->tolerance,
             "Largest error of loss and gradients; default: derived from sizes and storage")
      .positive();
  options.flag("--bisect", flags->bisect,
               "Also check simpler variants (one rank, one chunk, nothing spilled, ...) and say "
               "which change makes an error go away");
  add_machine_flags(options, flags->backend);
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] { return run_check(*flags); };
}

}  // namespace fpdt
