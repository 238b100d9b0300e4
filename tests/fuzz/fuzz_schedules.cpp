// Mutants of schedules. One that the verifier accepts must not crash, and if `check` passes it must
// train as the planner's schedule does.
//
//   fuzz_schedules [--mutants N] [--seed S] [--out DIR]
//   fuzz_schedules --seed S --only N [--out DIR]
//                    mutant N alone, in this process; with DIR, written to DIR/mutant.json
//
// Prints how many mutants were accepted, and what became of them. Exits with 1 when one crashed,
// hung, or passed the check but trained differently; that mutant is written to DIR, named by seed,
// case and number. Takes minutes by hand, a few seconds in the suite.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/check/twins.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/plan/methods/method.h"
#include "fpdt/schedule/print.h"
#include "fpdt/schedule/stated.h"
#include "fpdt/schedule/verify.h"

#include "cases.h"
#include "flags.h"
#include "isolated.h"
#include "mutate.h"

namespace fpdt::fuzz {
namespace {

// Wall-clock time, because a child that waits for a message uses no processor time.
constexpr unsigned kSeconds = 60;
constexpr double kLearningRate = 1e-2;
constexpr int kSteps = 3;
constexpr std::uint64_t kSeed = 7;
// In f32, another order of sums moves losses by about 1e-6.
constexpr double kSameLoss = 1e-3;
// How far a run in bf16 may be from its twin that rounds nothing. Adam makes percents of single
// roundings: 2 in the planner's own schedules of 16 layers, 3.5 where one tensor less is rounded.
// `check` compares the bits that both write.
constexpr double kMostRounding = 0.1;

// Exit codes with which a child reports on its mutant. 1 is reserved for sanitizers.
constexpr int kRejected = 2;
constexpr int kAccepted = 3;
enum class Fate : int { same = 0, refused = 10, disagreed = 11, otherwise = 12 };

struct Counts {
  int mutants = 0, accepted = 0, refused = 0, disagreed = 0, same = 0;
  int crashed = 0, hung = 0, otherwise = 0;
};

// What a training reports: losses and norms, as written and by the twin that stores f32.
struct Course {
  std::vector<double> exact;
  double rounding = 0;  // how far the schedule as written is from them
};

// A schedule to damage, and how it trains.
struct Original {
  Case one;
  Schedule schedule;
  Stated stated;
  std::vector<std::vector<Sample>> samples;
  std::vector<double> exact;  // losses and norms of its training, without rounding
};

std::vector<double> train(const VerifiedSchedule& schedule, const Original& original) {
  Trainer trainer(schedule, original.one.problem, Rig::one_thread());
  std::vector<double> losses;
  trainer.set_parameters(random_parameters(kSeed));
  for (int i = 0; i < kSteps; ++i) {
    const StepResult step =
        trainer.step(original.samples[static_cast<std::size_t>(i)], kLearningRate);
    losses.push_back(step.loss);
    losses.push_back(step.grad_norm);
  }
  losses.push_back(trainer.evaluate(original.samples[0]));
  return losses;
}

// The largest relative difference of two numbers. NaN counts as infinite.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double one = std::abs(a[i] - b[i]) / std::abs(b[i]);
    if (!(one <= largest)) largest = std::isnan(one) ? HUGE_VAL : one;
  }
  return largest;
}

Course course_of(const VerifiedSchedule& schedule, const Original& original) {
  std::vector<double> losses = train(schedule, original);
  if (!stores_bf16(schedule.schedule())) return {std::move(losses), 0};
  std::vector<double> exact = train(verified(widened(schedule.schedule())), original);
  const double rounding = difference(losses, exact);
  return {std::move(exact), rounding};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back(make_case(tiny_llama(), 2, 24, 8));
  all.push_back(make_case(tiny_gpt(), 2, 24, 8));
  all.back().problem.documents = true;
  all.back().strategy.keep = kStateHomes.back();
  all.push_back(make_case(tiny_qwen3(), 2, 20, 12));
  all.back().strategy.micro_batches = 2;
  all.push_back(make_case(tiny_llama(), 4, 24, 8));
  Strategy& rich = all.back().strategy;
  rich.mesh.replicas = 2;
  rich.micro_batches = 2;
  rich.keep = {0, 1, 0};
  rich.copies.optimizer_tile = 1024;
  for (const std::int64_t ranks : {2, 4}) {  // queries and keys together, and apart
    all.push_back(make_case(ranks == 2 ? tiny_llama() : tiny_gpt(), ranks, 24, 8));
    all.back().strategy.mesh.tensor = 2;
    if (ranks == 4) all.back().problem.model.kv_heads = 1;
  }
  all.push_back(make_case(tiny_olmo(), 2, 24, 8));
  LayerClass& some = all.back().strategy.layer_classes.front();
  some.recompute = Recompute::keep_attention;
  some.first_stored_chunk = 1;
  all.push_back(make_case(tiny_qwen3(), 2, 24, 8));
  all.back().problem.model.layers = 4;
  Strategy& segments = all.back().strategy;
  segments.segments = {3, 1};
  segments.layer_classes = {{.layers = 3, .recompute = Recompute::keep_attention},
                            {.layers = 0, .recompute = Recompute::keep_attention}};
  segments.layer_classes.front().first_stored_chunk = 2;
  all.push_back(make_case(tiny_llama(), 4, 24, 8));
  all.back().problem.cluster.nodes = all.back().problem.cluster.devices_per_node = 2;
  all.back().strategy.zero_groups = ZeroGroups::hybrid;
  // Windows beside full layers, and keys of a ring: whole runs of four, and halos of three.
  for (const auto& [ranks, window] : {std::pair{2, 7}, {3, 7}, {3, 4}}) {
    all.push_back(make_case(tiny_llama(), ranks, 24, ranks * 4));
    ModelSpec& model = all.back().problem.model;
    model.sinks = true;
    model.kinds.resize(2, model.kinds.front());
    model.kinds[0].name = "window";
    model.kinds[0].window = window;
    model.kinds[1].name = "full";
    model.kinds[1].rotary.theta = 500;
    model.pattern = {0, 1};
    if (ranks == 3) {
      all.back().strategy.mesh.ring = 3;
      all.back().strategy.keys = Keys::ring;
    }
  }
  all.push_back(make_case(tiny_qwen3(), 2, 24, 8));  // experts, in tiles of rows
  all.back().problem.model.joint_qk_norm = true;
  all.back().problem.model.experts = 4;
  all.back().problem.model.active_experts = 2;
  all.back().problem.model.balance_loss = 0.1;
  all.back().problem.model.bias = true;
  all.back().strategy.tiles.ffn_rows = 3;
  // Every method, in bf16 and in as many layers as hide an error of one below their rounding.
  for (const Method* const method : methods()) {
    for (const std::int64_t layers : {4, 16}) {
      Case& one = all.emplace_back(make_case(layers == 4 ? tiny_qwen3() : tiny_llama(), 2, 24, 8));
      one.name = fmt::format("{} of {} layers", method->name, layers);
      one.problem.model.layers = layers;
      one.strategy = method->published(one.problem, 1);
      one.strategy.storage = Storage::bf16;
      one.strategy.tiles.chunk_tokens = std::min<std::int64_t>(8, one.strategy.tiles.chunk_tokens);
      one.strategy = method->entered(one.problem, one.strategy);
    }
  }
  return all;
}

std::vector<Original> originals() {
  std::vector<Original> all;
  for (const Case& one : cases()) {
    Rig rig(one);
    Original& original = all.emplace_back(Original{
        one, rig.lowered.schedule.schedule(), stated_by(one.problem, one.strategy), {}, {}});
    for (std::uint64_t seed = 1; seed <= kSteps; ++seed) {
      original.samples.push_back(random_samples(one.problem, rig.trainer.samples_per_step(), seed));
    }
    original.exact = course_of(rig.lowered.schedule, original).exact;
  }
  return all;
}

// Damaged schedules that are not safe, or whose constants are not those of their problem.
std::vector<Diagnostic> findings_of(const Schedule& mutant, const Original& original) {
  const std::vector<Diagnostic> findings = verify(mutant);
  return findings.empty() ? verify_stated(mutant, original.stated) : findings;
}

Fate fate_of(const Schedule& mutant, const Original& original) {
  try {
    const VerifiedSchedule schedule = verified(mutant);
    CheckOptions options;
    options.samples = [&](const Problem&, std::int64_t) {
      return CheckSamples{original.samples[0], original.samples[1]};
    };
    options.seed = kSeed;
    options.learning_rate = kLearningRate;
    options.ranks = Rig::one_thread();
    if (!check_schedule(schedule, original.one.problem, options).agrees()) return Fate::disagreed;
    const Course course = course_of(schedule, original);
    const double off = difference(course.exact, original.exact);
    return off <= kSameLoss && course.rounding <= kMostRounding ? Fate::same : Fate::otherwise;
  } catch (const NumericError&) {
    return Fate::disagreed;
  } catch (const InputError&) {
    return Fate::refused;
  }
}

// Counts the fate of a mutant. Returns a word if nothing stopped it, else "".
std::string_view count(const Ending& ending, Counts& counts) {
  if (ending.kind == Ending::Kind::hung) return ++counts.hung, "hung";
  if (ending.kind == Ending::Kind::crashed) return ++counts.crashed, "crashed";
  switch (static_cast<Fate>(ending.code)) {
    case Fate::same:
      return ++counts.same, "";
    case Fate::refused:
      return ++counts.refused, "";
    case Fate::disagreed:
      return ++counts.disagreed, "";
    case Fate::otherwise:
      return ++counts.otherwise, "passed check and trained otherwise";
  }
  return ++counts.crashed, "crashed";
}

int run_only(const Flags& flags, const Original& original) {
  Schedule mutant = original.schedule;
  std::cout << Mutator(flags.number(flags.only)).mutate(mutant) << std::endl;
  if (!flags.out.empty()) std::ofstream(flags.out / "mutant.json") << print(mutant);
  const std::vector<Diagnostic> findings = findings_of(mutant, original);
  std::cout << format_diagnostics(findings);
  return findings.empty() ? static_cast<int>(fate_of(mutant, original)) : 0;
}

int run(const Flags& flags) {
  const std::vector<Original> all = originals();
  if (flags.only >= 0)
    return run_only(flags, all[static_cast<std::size_t>(flags.only) % all.size()]);
  Counts counts;
  for (; counts.mutants < flags.mutants; ++counts.mutants) {
    const Original& original = all[static_cast<std::size_t>(counts.mutants) % all.size()];
    // The mutator derives edges and offsets of a half-broken schedule, and the verifier reads it.
    // Both may fail, as the run may.
    const std::uint64_t number = flags.number(counts.mutants);
    const Ending made = isolated(
        [&] {
          Schedule copy = original.schedule;
          Mutator(number).mutate(copy);
          return findings_of(copy, original).empty() ? kAccepted : kRejected;
        },
        kSeconds);
    if (made.kind == Ending::Kind::returned && made.code == kRejected) continue;
    const bool accepted = made.kind == Ending::Kind::returned && made.code == kAccepted;
    Schedule mutant = original.schedule;
    std::string what = "while it was made and verified";
    Ending ending = made;
    if (accepted) {
      ++counts.accepted;
      what = Mutator(number).mutate(mutant);
      ending = isolated([&] { return static_cast<int>(fate_of(mutant, original)); }, kSeconds);
    }
    const std::string_view word = count(ending, counts);
    if (word.empty()) continue;
    const std::string name =
        "mutant-" + std::to_string(flags.seed) + "-" + std::to_string(counts.mutants) + ".json";
    std::cout << name << " (" << original.one.name << ") " << word << ": " << what << std::endl;
    if (!flags.out.empty() && accepted) std::ofstream(flags.out / name) << print(mutant);
  }
  std::cout << counts.mutants << " mutants, " << counts.accepted << " accepted: " << counts.refused
            << " refused by the trainer, " << counts.disagreed << " seen by check, " << counts.same
            << " trained the same; " << counts.crashed << " crashed, " << counts.hung << " hung, "
            << counts.otherwise << " passed check and trained otherwise\n";
  return counts.crashed + counts.hung + counts.otherwise == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fpdt::fuzz

int main(int count, char** arguments) {
  return fpdt::fuzz::run(fpdt::fuzz::parse_flags(count, arguments));
}
