// Answers a question and writes the files of the answer.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/plan/search/longest.h"

#include "common/command.h"
#include "plan/answer.h"
#include "plan/question.h"
#include "plan/verbs.h"
#include "plan/watch.h"

namespace fpdt {
namespace {

struct SearchFlags {
  QuestionFlags question;
  std::string out_dir;
  std::int64_t take = 0;  // of the front; 0: the answer
  std::string within;     // "10%"; empty: any time
};

// Ops of a step that are all traced for the peak; of longer steps, a layer of each kind.
constexpr std::int64_t kTraced = 100000;

// Makes another plan of the front the answer.
void take_plan(std::int64_t take, SearchResult& found) {
  const auto plans = static_cast<std::int64_t>(found.front.size());
  if (take > plans) {
    throw InputError(fmt::format("--take {}: {} {} are on the front of this question: 1 to {}",
                                 take, plans, plans == 1 ? "plan" : "plans", plans));
  }
  found.best = found.front[static_cast<std::size_t>(take - 1)];
  found.host = found.device = {};  // what more memory gains is that of the first answer
}

// "10%" or "10" as a share.
double parse_share(const std::string& text) {
  const std::string number = text.ends_with('%') ? text.substr(0, text.size() - 1) : text;
  char* end = nullptr;
  const double percent = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !(percent > 0 && percent <= 1000)) {
    throw InputError(fmt::format("--within {}: expected a percentage over 0, such as 10%", text));
  }
  return percent / 100;
}

Answer search_answer(const Question& question, std::int64_t take, Watch& watch) {
  const Problem& problem = question.problem;
  const Pins& pins = question.pins;
  Answer answer;
  answer.problem = problem;
  answer.pins = pins;
  const auto begin = std::chrono::steady_clock::now();
  watch.begin("search");
  answer.search = search(problem, pins, {.prices = true, .progress = watch.listener()});
  if (take > 0 && answer.search.best) take_plan(take, answer.search);
  if (answer.search.best) {
    Strategy strategy = answer.search.best->strategy;
    // The plan says how many ranks it is for, so that it can be used as a strategy on all GPUs.
    if (question.unused > 0) strategy.mesh.heads = geometry(problem, strategy).head_ranks();
    watch.begin("fewer GPUs");
    if (take == 0) answer.fewer = faster_on_fewer(problem, pins, answer.search);
    watch.begin("proving and timing the plan");
    answer.plan = make_plan(problem, strategy, print_problem(problem, strategy), kTraced);
    if (question.published != nullptr) {
      answer.wasted =
          wasted(problem, *question.published, strategy, answer.plan->lowered.schedule.schedule());
    }
  } else {
    watch.begin("looking for what would fit");
    answer.nearest = nearest_fits(problem, pins, question.machine, watch.listener());
  }
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return answer;
}

// Both files are on the disk before either shows, so that a full disk leaves no pair that
// disagrees.
void write_plan(const Answer& answer, const std::string& out_dir) {
  std::error_code failure;
  std::filesystem::create_directories(out_dir, failure);
  if (failure) throw IoError(fmt::format("--out-dir {}: {}", out_dir, failure.message()));
  AtomicFile plan(out_dir + "/plan.yaml");
  AtomicFile schedule(out_dir + "/schedule.json");
  plan.write(plan_yaml(answer));
  schedule.write(schedule_text(answer.plan->lowered.schedule.schedule()));
  plan.commit();
  schedule.commit();
}

int finish(const Answer& answer, const SearchFlags& flags, Watch& watch) {
  if (answer.plan && !flags.out_dir.empty()) watch.begin("writing the schedule");
  if (answer.plan && !flags.out_dir.empty()) write_plan(answer, flags.out_dir);
  watch.hide();
  if (flags.question.json) {
    print_result(answer_json(answer));
  } else {
    print_result(answer.plan ? Tone::good : Tone::bad, verdict(answer),
                 answer_text(answer, flags.out_dir, weights_beside(flags.question.model)));
  }
  return static_cast<int>(answer.plan ? ExitCode::done : ExitCode::infeasible);
}

}  // namespace

Command declare_search(Options& options) {
  auto flags = std::make_shared<SearchFlags>();
  add_question(options, flags->question);
  add_pins(options, flags->question);
  add_published(options, flags->question);
  options.value("--out-dir", flags->out_dir, "Write plan.yaml and schedule.json to this directory");
  options
      .value("--take", flags->take,
             "Plan to take: its number in `other fits`, or in `front` of --json; default: the best")
      .integer(1, 1 << 20);
  return [flags] {
    const Question question = load_question(flags->question);
    Watch watch;
    return finish(search_answer(question, flags->take, watch), *flags, watch);
  };
}

Command declare_max_seq(Options& options) {
  auto flags = std::make_shared<SearchFlags>();
  add_question(options, flags->question, Length::found);
  add_pins(options, flags->question);
  options.value("--out-dir", flags->out_dir, "Write plan.yaml and schedule.json to this directory");
  options.value("--within", flags->within,
                "Only lengths whose step takes at most so much longer than with unlimited host "
                "memory, such as 10%; default: any");
  return [flags] {
    Question question = load_question(flags->question);
    const double share = flags->within.empty() ? 0 : parse_share(flags->within);
    Watch watch;
    const auto answer_longest = [&](bool few_layers) {
      watch.begin("longest sequence");
      const auto listener = watch.listener();
      const std::int64_t longest =
          share > 0 ? longest_within(question.problem, question.pins, share, listener)
                    : longest_sequence(question.problem, question.pins, listener, few_layers);
      if (longest > 0) question.problem.seq_len = longest;
      Answer answer = search_answer(question, flags->take, watch);
      answer.longest = longest;
      return answer;
    };
    Answer answer = answer_longest(true);
    if (answer.longest > 0 && !answer.plan) answer = answer_longest(false);
    watch.hide();
    if (answer.plan) note_length(question, question.problem);
    return finish(answer, *flags, watch);
  };
}

}  // namespace fpdt
