// Planning from files to a schedule file, and the summary of its bytes.
#include "plan_lower.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "fpdt/io/cluster_file.h"
#include "fpdt/io/file.h"
#include "fpdt/io/json.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/schedule_json.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/plan/bytes.h"
#include "fpdt/plan/lower.h"
#include "fpdt/schedule/print.h"

#include "command.h"
#include "plan_fit.h"

namespace fpdt {
namespace {

constexpr std::array<MemorySpace, 3> kSpaces{MemorySpace::device, MemorySpace::host_pinned,
                                             MemorySpace::host};

std::int64_t parse_length(const std::string& text) {
  const auto tokens = parse_tokens(text);
  if (!tokens || *tokens < 1) {
    throw InputError(fmt::format(
        "--seq-len: expected 1 to 1G tokens, such as 64K, 2M or 100000, found \"{}\"", text));
  }
  return *tokens;
}

Bytes parse_budget(const std::string& flag, const std::string& text, Bytes limit,
                   std::string_view owner) {
  if (text.empty()) return limit;
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->value < 1) {
    throw InputError(
        fmt::format("{}: expected a size such as 64MiB or 80GiB, found \"{}\"", flag, text));
  }
  if (*bytes > limit) {
    throw InputError(fmt::format("{}: {} is more than the {} that {} has", flag,
                                 format_bytes(*bytes), format_bytes(limit), owner));
  }
  return *bytes;
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
  text += fmt::format("sequence    {} tokens in {} of {}\n", problem.seq_len,
                      shape.chunks == 1 ? "1 chunk" : fmt::format("{} chunks", shape.chunks),
                      shape.chunk_rows);
  text += fmt::format(
      "schedule    {} ops in {} blocks, {} a step; verified\n",
      [&] {
        std::size_t ops = 0;
        for (const Block& block : schedule.blocks) ops += block.ops.size();
        return ops;
      }(),
      schedule.blocks.size(), executed(schedule, schedule.train));
  text += fmt::format("\n{:<13}{:>12}{:>12}{:>12}{:>12}  (bytes of one rank)\n", "space", "live",
                      "bound", "arena", "predicted");
  for (const MemorySpace space : kSpaces) {
    const SpaceUse& use = lowered.placement.of(space);
    text += fmt::format("{:<13}{:>12}{:>12}{:>12}{:>12}\n", word(space), format_bytes(use.live),
                        format_bytes(use.bound), format_bytes(use.arena),
                        format_bytes(predicted(prediction, space)));
  }
  text += fmt::format("\nbudget      device {} of {}, host {} of {} a node\n",
                      format_bytes(lowered.placement.of(MemorySpace::device).arena),
                      format_bytes(problem.device_budget),
                      format_bytes(node_bytes(problem, lowered.placement)),
                      format_bytes(problem.host_budget));
  text += fmt::format("wrote       {}\n", path);
  return text;
}

std::string summary_json(const Problem& problem, const Strategy& strategy, const Lowered& lowered,
                         const std::string& path) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Prediction prediction = predict(problem, strategy);
  std::string spaces;
  for (const MemorySpace space : kSpaces) {
    const SpaceUse& use = lowered.placement.of(space);
    spaces += fmt::format(R"({}"{}":{{"live":{},"bound":{},"arena":{},"predicted":{}}})",
                          spaces.empty() ? "" : ",", word(space), use.live.value, use.bound.value,
                          use.arena.value, predicted(prediction, space).value);
  }
  return fmt::format(R"({{"schema":"fpdt.lower/1","schedule":{},"ranks":{},"ops_per_step":{},)"
                     R"("parameters":{},"bytes":{{{}}}}})"
                     "\n",
                     json_string(path), problem.ranks(), executed(schedule, schedule.train),
                     parameter_count(problem.model), spaces);
}

// "file:line" of a key in a strategy file; the file alone when the key stands at its default.
std::string place_of(const std::string& path, std::string_view key) {
  std::istringstream text(read_file(path, std::int64_t{1} << 20));
  std::int64_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(" -{");
    if (first != std::string::npos &&
        line.compare(first, key.size() + 1, fmt::format("{}:", key)) == 0) {
      return fmt::format("{}:{}", path, number);
    }
  }
  return path;
}

// Throws what is wrong with the strategy, at the lines of its file.
void require_sound(const Problem& problem, const Strategy& strategy, const std::string& path) {
  std::vector<Diagnostic> findings = check(problem, strategy);
  if (findings.empty()) return;
  for (Diagnostic& finding : findings) {
    if (path.empty() || finding.where != "strategy") continue;
    finding.where = place_of(path, finding.message.substr(0, finding.message.find_first_of(":[ ")));
  }
  throw InputError(format_diagnostics(findings));
}

}  // namespace

int plan_lower(const LowerFlags& flags) {
  std::vector<std::string> notes;
  Problem problem;
  problem.model = load_model(flags.model, &notes);
  for (const std::string& note : notes) say(fmt::format("note: {}\n", note));
  problem.cluster = load_cluster(flags.cluster);
  problem.seq_len = parse_length(flags.seq_len);
  problem.optimizer = flags.optimizer;
  problem.device_budget = parse_budget("--device-budget", flags.device_budget,
                                       problem.cluster.device_memory, "a device");
  problem.host_budget =
      parse_budget("--host-budget", flags.host_budget, problem.cluster.host_memory, "a node");
  const Strategy strategy =
      flags.strategy.empty() ? default_strategy(problem) : load_strategy(flags.strategy);

  require_sound(problem, strategy, flags.strategy);
  for (const std::string& note : without_effect(problem, strategy)) {
    if (!flags.strategy.empty()) say(fmt::format("note: {}: {}\n", flags.strategy, note));
  }
  say(fmt::format("lowering {} at {} tokens for {} ranks ...\n", problem.model.name,
                  format_tokens(problem.seq_len), problem.ranks()));
  const Lowered lowered = lower(problem, strategy, print_problem(problem, strategy));
  require_fit(problem, strategy, lowered);

  std::error_code failure;
  std::filesystem::create_directories(flags.out_dir, failure);
  if (failure) throw IoError(fmt::format("--out-dir {}: {}", flags.out_dir, failure.message()));
  const std::string path = flags.out_dir + "/schedule.json";
  // Both are on the disk before either shows, so that a full one leaves no pair that disagrees.
  AtomicFile strategy_file(flags.out_dir + "/strategy.yaml");
  AtomicFile schedule_file(path);
  strategy_file.write(print_strategy(strategy));
  schedule_file.write(print(lowered.schedule.schedule()));
  strategy_file.commit();
  schedule_file.commit();
  print_result(flags.json ? summary_json(problem, strategy, lowered, path)
                          : summary(problem, strategy, lowered, path));
  return 0;
}

int plan_verify(const std::string& path, bool json) {
  const VerifiedSchedule schedule = verified(load_schedule(path));
  const Schedule& s = schedule.schedule();
  const std::int64_t ops = executed(s, s.train) + executed(s, s.evaluate);
  print_result(
      json ? fmt::format(
                 "{{\"schema\":\"fpdt.verify/1\",\"verified\":true,\"ranks\":{},\"ops\":{}}}\n",
                 s.ranks, ops)
           : fmt::format("{}: verified, {} ranks, {} ops over train and evaluate\n", path, s.ranks,
                         ops));
  return 0;
}

}  // namespace fpdt
