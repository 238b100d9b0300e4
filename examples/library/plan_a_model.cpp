// Plans a training step from C++: reads a model and a cluster, searches, and writes the schedule.
//   plan_a_model MODEL.yaml CLUSTER.yaml TOKENS SCHEDULE.json
#include <cstdio>

#include <fpdt/io/cluster_file.h>
#include <fpdt/io/file.h>
#include <fpdt/io/model_file.h>
#include <fpdt/io/problem_json.h>
#include <fpdt/plan/answers/nearest.h>
#include <fpdt/plan/plan.h>
#include <fpdt/schedule/print.h>

namespace {

void print(const fpdt::Nearest& nearest) {
  using What = fpdt::Nearest::What;
  const std::string bytes = fpdt::format_bytes(fpdt::Bytes{nearest.value});
  const std::string count = fpdt::format_tokens(nearest.value);
  const std::string text = nearest.what == What::seq_len  ? count + " tokens"
                           : nearest.what == What::gpus   ? count + " GPUs"
                           : nearest.what == What::host_memory ? bytes + " of host memory"
                                                               : bytes + " a device";
  std::fprintf(stderr, "would fit: %s\n", text.c_str());
}

int plan(const char* model, const char* cluster, const char* tokens, const char* out) {
  const std::optional<std::int64_t> seq_len = fpdt::parse_tokens(tokens);
  if (!seq_len) throw fpdt::InputError("TOKENS: expected a count such as 64K or 100000");
  fpdt::Problem problem;
  problem.model = fpdt::load_model(model);
  problem.cluster = fpdt::load_cluster(cluster);
  problem.seq_len = *seq_len;
  // Budgets have no default: a search within 0 bytes is refused.
  problem.device_budget = problem.cluster.device_memory;
  problem.host_budget = problem.cluster.host_memory;
  // cuDNN's attention does not support several documents in a sequence.
  problem.documents = problem.cluster.attention != fpdt::AttentionKernels::cudnn;

  const fpdt::SearchResult found = fpdt::search(problem);
  if (!found.best) {
    std::fprintf(stderr, "does not fit: needs %s, there is %s\n",
                 fpdt::format_bytes(found.shortage->need).c_str(),
                 fpdt::format_bytes(found.shortage->have).c_str());
    for (const fpdt::Nearest& one : fpdt::nearest_fits(problem, {}, problem.cluster)) print(one);
    return static_cast<int>(fpdt::ExitCode::infeasible);
  }
  const fpdt::Strategy& strategy = found.best->strategy;
  // Lowers, places and proves. The problem goes into the schedule, so that a run knows its model.
  const fpdt::Plan plan =
      fpdt::make_plan(problem, strategy, fpdt::print_problem(problem, strategy));
  fpdt::write_file_atomically(out, fpdt::print(plan.lowered.schedule.schedule()));
  const auto typical = static_cast<std::size_t>(fpdt::RateEnd::typical);
  std::printf("%s\n%s per device, %s per node, %.3g s per step\n",
              fpdt::in_words(problem, strategy).c_str(),
              fpdt::format_bytes(plan.usage.device).c_str(),
              fpdt::format_bytes(plan.usage.host_node).c_str(),
              plan.throughput[typical].step_seconds);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: plan_a_model MODEL CLUSTER TOKENS SCHEDULE\n");
    return static_cast<int>(fpdt::ExitCode::bad_input);
  }
  try {
    return plan(words[1], words[2], words[3], words[4]);
  } catch (const fpdt::Error& error) {
    std::fprintf(stderr, "plan_a_model: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
