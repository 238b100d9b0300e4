// The check's table.
#include "run_check.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/io/json.h"

#include "command.h"
#include "job.h"

namespace fpdt {
namespace {

constexpr std::size_t kSteps = 2;

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

std::string json(const CheckReport& report) {
  std::string tensors;
  for (const TensorCheck& tensor : report.tensors) {
    tensors += fmt::format(
        "{}{{\"tensor\":{},\"gradient\":{},\"parameter\":{},\"moment1\":{},\"moment2\":{},"
        "\"agrees\":{}}}",
        tensors.empty() ? "" : ",", json_string(tensor.tensor), json_number(tensor.gradient),
        json_number(tensor.parameter), json_number(tensor.moment1), json_number(tensor.moment2),
        tensor.agrees);
  }
  return fmt::format(
      "{{\"agrees\":{},\"loss\":{},\"reference_loss\":{},\"loss_error\":{},\"evaluate_error\":{},"
      "\"grad_norm_error\":{},\"tolerance\":{},\"update_tolerance\":{},\"tensors\":[{}]}}\n",
      report.agrees(), json_number(report.loss), json_number(report.reference_loss),
      json_number(report.loss_error), json_number(report.evaluate_error),
      json_number(report.grad_norm_error), json_number(report.tolerance),
      json_number(kUpdateTolerance), tensors);
}

}  // namespace

int run_check(const CheckFlags& flags) {
  const Job job = load_job(flags.schedule);
  const std::int64_t count = mul(job.strategy.data_parallel, job.strategy.micro_batches);
  require_feasible(job.problem, count);
  const RankMachine machine = open_machine(flags.backend);
  Trainer trainer(job.schedule, job.problem, job.strategy, machine.ranks);
  trainer.set_parameters(random_parameters(flags.seed));
  std::array<std::vector<Sample>, kSteps> samples;
  if (flags.data.empty()) {
    for (std::size_t i = 0; i < kSteps; ++i) {
      samples[i] = random_samples(job.problem, count, flags.seed + i);
    }
  } else {
    Batches batches(flags.data, job.problem.model.vocabulary, job.problem.seq_len,
                    {flags.separator, "", token_format(flags.data_format)});
    for (std::vector<Sample>& one : samples) one = batches.next_labelled(count);
  }
  const double tolerance =
      flags.tolerance > 0 ? flags.tolerance : derived_tolerance(job.problem, job.strategy.storage);
  say(fmt::format("{} steps of {} tokens on {} ranks, and the reference in double precision ...\n",
                  kSteps, mul(count, job.problem.seq_len), job.problem.ranks()));
  CheckReport report = check_step(trainer, samples[0], flags.learning_rate, tolerance);
  // At another learning rate, so that no step is as the one before.
  add_errors(report, check_step(trainer, samples[1], flags.learning_rate / 2, tolerance));
  print_result(flags.json ? json(report) : table(report));
  return static_cast<int>(report.agrees() ? ExitCode::done : ExitCode::disagree);
}

}  // namespace fpdt
