// Planning from files to a schedule file, and the summary of its bytes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_file.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/plan/answers/nearest.h"
#include "fpdt/plan/bytes.h"
#include "fpdt/plan/plan.h"
#include "fpdt/report/palette.h"

#include "common/command.h"
#include "plan/answer.h"
#include "plan/question.h"
#include "plan/verbs.h"

namespace fpdt {
namespace {

constexpr std::array<MemorySpace, 3> kSpaces{MemorySpace::device, MemorySpace::host_pinned,
                                             MemorySpace::host};

struct LowerFlags {
  QuestionFlags question;
  std::string out_dir;
};

// The heaviest categories of a space, by rings before any sharing.
std::string heaviest(const Schedule& schedule, MemorySpace space) {
  std::map<std::string, Bytes> sums;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == space) sums[std::string(word(part_of(buffer)))] += buffer.bytes();
  }
  std::vector<std::pair<std::string, Bytes>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < order.size() && i < 3; ++i) {
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", order[i].first, format_bytes(order[i].second));
  }
  return text;
}

// Parameters, gradients and optimizer states of one rank on its device.
Bytes state_bytes(const Schedule& schedule) {
  Bytes bytes;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == MemorySpace::device && buffer.role == Role::state) bytes += buffer.bytes();
  }
  return bytes;
}

// The nearest strategy that fits, with its bytes; without one, what else to do.
std::string smaller_text(const Problem& problem, const Strategy& strategy) {
  const auto found = nearest_strategy(problem, strategy);
  if (!found) {
    return "no smaller chunk of this strategy fits: use more devices or a larger budget";
  }
  return fmt::format("with {}, it would need {}", found->change.words,
                     format_bytes(found->usage.device));
}

// InfeasibleError names what binds, the heaviest parts, and the nearest strategy that fits.
void require_fit(const Problem& problem, const Strategy& strategy, const Lowered& lowered) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Usage need = usage(problem, strategy, lowered.placement);
  if (need.device > problem.device_budget) {
    const Bytes states = state_bytes(schedule);
    const std::string alone =
        states > problem.device_budget
            ? fmt::format(" Parameters, gradients and optimizer states alone need {}.",
                          format_bytes(states))
            : "";
    throw InfeasibleError(fmt::format(
        "device memory: the schedule needs {}, the budget is {} ({} short).{} Most of it: {}; {}",
        format_bytes(need.device), format_bytes(problem.device_budget),
        format_bytes(need.device - problem.device_budget), alone,
        heaviest(schedule, MemorySpace::device), smaller_text(problem, strategy)));
  }
  if (need.host_node > problem.host_budget) {
    throw InfeasibleError(fmt::format(
        "host memory: the {} ranks of a node need {}, the budget is {} ({} short). Most of it, per "
        "rank: {}; keep more on the device, set segments, or use more nodes",
        problem.cluster.devices_per_node, format_bytes(need.host_node),
        format_bytes(problem.host_budget), format_bytes(need.host_node - problem.host_budget),
        heaviest(schedule, MemorySpace::host_pinned)));
  }
}

// Op executions of one call list.
std::int64_t executed(const Schedule& schedule, const std::vector<Call>& calls) {
  std::int64_t ops = 0;
  for (const Call& call : calls) {
    ops +=
        static_cast<std::int64_t>(schedule.blocks[static_cast<std::size_t>(call.block)].ops.size());
  }
  return ops;
}

Bytes predicted(const Prediction& prediction, MemorySpace space) {
  if (space == MemorySpace::device) return prediction.device;
  return space == MemorySpace::host_pinned ? prediction.host_pinned : prediction.host;
}

std::string summary(const Problem& problem, const Strategy& strategy, const Lowered& lowered,
                    const std::string& path) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Geometry shape = geometry(problem, strategy);
  const Prediction prediction = predict(problem, strategy);
  std::string text;
  text += fmt::format("model       {}: {} parameters, {} layers\n", problem.model.name,
                      parameter_count(problem.model), problem.model.layers);
  text += fmt::format("ranks       {} = {} sequence-parallel x {} data-parallel on {}\n",
                      problem.ranks(), shape.sequence_parallel, shape.data_parallel,
                      problem.cluster.name);
  text += fmt::format("sequence    {} tokens in {} of {}{}\n", problem.seq_len,
                      shape.chunks == 1 ? "1 chunk" : fmt::format("{} chunks", shape.chunks),
                      shape.ragged() ? "up to " : "", shape.chunk_rows);
  text += fmt::format(
      "schedule    {} ops in {} blocks, {} per step; verified\n",
      [&] {
        std::size_t ops = 0;
        for (const Block& block : schedule.blocks) ops += block.ops.size();
        return ops;
      }(),
      schedule.blocks.size(), executed(schedule, schedule.train));
  text += fmt::format("\n{:<13}{:>12}{:>12}{:>12}{:>12}  (bytes of one rank)\n", "space", "live",
                      "bound", "arena", "unplaced");
  for (const MemorySpace space : kSpaces) {
    const SpaceUse& use = lowered.placement.of(space);
    text += fmt::format("{:<13}{:>12}{:>12}{:>12}{:>12}\n", word(space), format_bytes(use.live),
                        format_bytes(use.bound), format_bytes(use.arena),
                        format_bytes(predicted(prediction, space)));
  }
  const Usage need = usage(problem, strategy, lowered.placement);
  const auto line = [](std::string_view key, const std::string& content) {
    return wrapped(key, content, 11);
  };
  const std::string beside = need.outside.value > 0 ? fmt::format(", {} of it outside the arena",
                                                                  format_bytes(need.outside))
                                                    : "";
  text += "\n" + line("budget", fmt::format("device {} of {}{}", format_bytes(need.device),
                                            format_bytes(problem.device_budget), beside));
  text += line("", fmt::format("host {} of {} per node", format_bytes(need.host_node),
                               format_bytes(problem.host_budget)));
  text += line("", checkpoint_text(need));
  text += line("outside", outside_text(problem.cluster, need));
  if (!fits_numa_nodes(problem, need)) text += line("NUMA", numa_text(problem, need));
  text += fmt::format("wrote       {}\n", path);
  return text;
}

Json summary_json(const Problem& problem, const Strategy& strategy, const Lowered& lowered,
                  const std::string& path) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Prediction prediction = predict(problem, strategy);
  Json spaces;
  for (const MemorySpace space : kSpaces) {
    const SpaceUse& use = lowered.placement.of(space);
    spaces[std::string(word(space))] = {{"live", use.live.value},
                                        {"bound", use.bound.value},
                                        {"arena", use.arena.value},
                                        {"predicted", predicted(prediction, space).value}};
  }
  Json object{{"schema", "fpdt.lower/1"},
              {"schedule", path},
              {"ranks", problem.ranks()},
              {"ops_per_step", executed(schedule, schedule.train)},
              {"parameters", parameter_count(problem.model)},
              {"bytes", spaces}};
  object.update(host_json(problem, usage(problem, strategy, lowered.placement)));
  return object;
}

// With FPDT_PASSES=time in the environment, prints the seconds of each pass on standard error.
PassObserver pass_times() {
  const char* const asked = std::getenv("FPDT_PASSES");
  if (asked == nullptr || std::string_view(asked) != "time") return {};
  using Clock = std::chrono::steady_clock;
  return [last = std::string(), since = Clock::now()](std::string_view pass) mutable {
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> seconds = now - since;
    if (!last.empty()) say(fmt::format("{:<8}{:>9.3f} s\n", last, seconds.count()));
    last = pass;
    since = now;
  };
}

int plan_lower(const LowerFlags& flags) {
  if (!flags.question.method.empty() && !flags.question.published) {
    throw InputError("--method: lower does not search, so it needs --published");
  }
  const Question question = load_question(flags.question);
  const Problem& problem = question.problem;
  const Strategy strategy = question.pins.strategy.value_or(default_strategy(problem));
  require_sound(problem, strategy, "");
  say(fmt::format("lowering {} at {} tokens for {} ranks ...\n", problem.model.name,
                  format_tokens(problem.seq_len), problem.ranks()));
  const Lowered lowered = lower(problem, strategy, print_problem(problem, strategy), pass_times());
  require_fit(problem, strategy, lowered);

  std::error_code failure;
  std::filesystem::create_directories(flags.out_dir, failure);
  if (failure) throw IoError(fmt::format("--out-dir {}: {}", flags.out_dir, failure.message()));
  const std::string path = flags.out_dir + "/schedule.json";
  // Both files are on the disk before either shows, so that a full disk leaves no pair that
  // disagrees.
  AtomicFile strategy_file(flags.out_dir + "/strategy.yaml");
  AtomicFile schedule_file(path);
  strategy_file.write(print_strategy(strategy));
  schedule_file.write(schedule_text(lowered.schedule.schedule()));
  strategy_file.commit();
  schedule_file.commit();
  print_result(flags.question.json ? json_line(summary_json(problem, strategy, lowered, path))
                                   : summary(problem, strategy, lowered, path));
  return 0;
}

int plan_verify(const std::string& path, bool json) {
  Schedule loaded = load_schedule(path);
  const bool states_problem = !loaded.problem.empty() && loaded.problem != "{}";
  const VerifiedSchedule schedule = !states_problem
                                        ? verified(std::move(loaded))
                                        : prove_schedule_file(path, std::move(loaded)).schedule;
  const Schedule& s = schedule.schedule();
  const std::int64_t ops = executed(s, s.train) + executed(s, s.evaluate);
  print_result(
      json
          ? json_line(
                {{"schema", "fpdt.verify/1"}, {"verified", true}, {"ranks", s.ranks}, {"ops", ops}})
          : fmt::format("{}: verified, {} ranks, {} ops over train and evaluate\n", path, s.ranks,
                        ops));
  return 0;
}

}  // namespace

Command declare_lower(Options& options) {
  auto flags = std::make_shared<LowerFlags>();
  add_question(options, flags->question);
  add_method(options, flags->question);
  add_published(options, flags->question);
  options
      .value("--out-dir", flags->out_dir, "Write schedule.json and strategy.yaml to this directory")
      .required();
  return [flags] { return plan_lower(*flags); };
}

Command declare_verify(Options& options) {
  struct VerifyFlags {
    std::string path;
    bool json = false;
  };
  auto flags = std::make_shared<VerifyFlags>();
  options.value("SCHEDULE", flags->path, "Schedule file").required();
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] { return plan_verify(flags->path, flags->json); };
}

}  // namespace fpdt
