// The check's tables.
#include "run_check.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"

#include "bisect.h"
#include "command.h"
#include "job.h"
#include "progress.h"

namespace fpdt {
namespace {

using Json = nlohmann::ordered_json;

std::string table(const CheckReport& report) {
  std::string text = fmt::format("loss {:.7f}, reference {:.7f}, relative error {:.1e}\n",
                                 report.loss, report.reference_loss, report.loss_error);
  text += fmt::format("loss after the update: relative error {:.1e}; gradient norm: {:.1e}\n",
                      report.evaluate_error, report.grad_norm_error);
  text += "\nlargest error, relative to the tensor's largest element\n";
  text += fmt::format("{:<32} {:>10} {:>10} {:>10} {:>10}\n", "tensor", "gradient", "parameter",
                      "moment1", "moment2");
  for (const TensorCheck& tensor : report.tensors) {
    text += fmt::format("{:<32} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}{}\n", tensor.tensor,
                        tensor.gradient, tensor.parameter, tensor.moment1, tensor.moment2,
                        tensor.agrees ? "" : "  disagrees");
  }
  text += fmt::format("{:<32} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}\n", "tolerance",
                      report.tolerance, kUpdateTolerance, kUpdateTolerance, kUpdateTolerance);
  text += report.agrees() ? "\nThe schedule agrees with the reference.\n"
                          : "\nThe schedule disagrees with the reference.\n";
  return text;
}

Json json(const CheckReport& report) {
  Json tensors = Json::array();
  for (const TensorCheck& tensor : report.tensors) {
    tensors.push_back({{"tensor", tensor.tensor},
                       {"gradient", tensor.gradient},
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
    // A variant with one document a sequence takes the separator for any other token.
    const bool joined = documents && !problem.documents;
    Batches batches(flags.data, problem.model.vocabulary, problem.seq_len,
                    {joined ? -1 : flags.separator, "", token_format(flags.data_format)});
    CheckSamples samples;
    for (std::vector<Sample>& one : samples) one = batches.next_labelled(count);
    return samples;
  };
  return options;
}

}  // namespace

int run_check(const CheckFlags& flags) {
  const Job job = load_job(flags.schedule);
  const RankMachine machine = open_machine(flags.backend);
  CheckOptions options = options_of(flags, job);
  options.ranks = machine.ranks;
  const std::int64_t tokens =
      mul(mul(job.strategy.data_parallel, job.strategy.micro_batches), job.problem.seq_len);
  say(fmt::format("two steps of {} tokens on {} ranks, and the reference in double precision ...\n",
                  tokens, job.problem.ranks()));
  if (!flags.bisect) {
    const CheckReport report = check_schedule(job.schedule, job.problem, job.strategy, options);
    print_result(flags.json ? json(report).dump() + "\n" : table(report));
    return static_cast<int>(report.agrees() ? ExitCode::done : ExitCode::disagree);
  }
  StatusLine status;
  const Bisection found =
      bisect(job.schedule, job.problem, job.strategy, options,
             [&](std::string_view change) { status.show(fmt::format("checking: {}", change)); });
  status.end();
  const std::optional<CheckReport>& report = found.schedule.report;
  if (flags.json) {
    Json text = report ? json(*report) : Json::object({{"agrees", false}});
    text["bisection"] = json(found);
    print_result(text.dump() + "\n");
  } else {
    print_result(fmt::format("{}{}", report ? table(*report) + "\n" : "", table(found)));
  }
  return static_cast<int>(found.agrees() ? ExitCode::done : ExitCode::disagree);
}

}  // namespace fpdt
