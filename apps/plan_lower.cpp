// Planning from files to a schedule file, and the summary of its bytes.
#include "plan_lower.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
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

// What a device would need under neighbouring strategies, by closed form, to name a way out.
std::string nearest_fit(const Problem& problem, const Strategy& strategy) {
  struct Change {
    std::string words;
    Strategy strategy;
  };
  std::vector<Change> changes;
  Strategy spilled = strategy;
  for (LayerClass& one : spilled.fpdt.layer_classes) one.keep.fill(0);
  if (!(spilled == strategy)) changes.push_back({"spill every tensor class (keep: 0)", spilled});
  const std::int64_t unit = problem.ranks() / strategy.data_parallel * problem.cluster.row_multiple;
  Strategy halved = spilled;
  for (std::int64_t c = geometry(problem, strategy).chunk_rows / 2 / unit * unit; c >= unit;
       c = c / 2 / unit * unit) {
    halved.fpdt.chunk_tokens = c;
    const std::int64_t local = c / (unit / problem.cluster.row_multiple);
    halved.fpdt.ffn_tile_rows =
        std::min(local, std::max<std::int64_t>(1, halved.fpdt.ffn_tile_rows));
    halved.fpdt.loss_tile_rows =
        std::min(local, std::max<std::int64_t>(1, halved.fpdt.loss_tile_rows));
    changes.push_back({fmt::format("chunk_tokens: {}, everything spilled", c), halved});
  }
  if (!strategy.optimizer_offload) {
    std::vector<Change> offloaded = changes;
    offloaded.insert(offloaded.begin(), {"the same", strategy});
    for (Change& change : offloaded) {
      change.strategy.optimizer_offload = true;
      change.words += " with optimizer_offload: true";
      changes.push_back(change);
    }
  }
  for (const Change& change : changes) {
    if (!check(problem, change.strategy).empty()) continue;
    const Prediction need = predict(problem, change.strategy);
    if (need.device <= problem.device_budget &&
        problem.cluster.devices_per_node * (need.host_pinned + need.host) <= problem.host_budget) {
      return fmt::format("; {} would need {}", change.words, format_bytes(need.device));
    }
  }
  return "; no smaller chunk of this strategy fits: use more devices or a shorter sequence";
}

// The heaviest categories of a space, by rings before any sharing.
std::string heaviest(const Schedule& schedule, MemorySpace space) {
  std::map<std::string, Bytes> sums;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == space) sums[std::string(word(buffer.category))] += buffer.bytes();
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

void require_fit(const Problem& problem, const Strategy& strategy, const Lowered& lowered) {
  const Schedule& schedule = lowered.schedule.schedule();
  const Bytes device = lowered.placement.of(MemorySpace::device).arena;
  if (device > problem.device_budget) {
    throw InfeasibleError(fmt::format(
        "device memory: the schedule needs {}, the budget is {} ({} short). Most of it: {}{}",
        format_bytes(device), format_bytes(problem.device_budget),
        format_bytes(device - problem.device_budget), heaviest(schedule, MemorySpace::device),
        nearest_fit(problem, strategy)));
  }
  const Bytes host =
      problem.cluster.devices_per_node * (lowered.placement.of(MemorySpace::host_pinned).arena +
                                          lowered.placement.of(MemorySpace::host).arena);
  if (host > problem.host_budget) {
    throw InfeasibleError(fmt::format(
        "host memory: the {} ranks of a node need {}, the budget is {} ({} short). Most of it a "
        "rank: {}; "
        "keep more on the device, set checkpoint_every, or use more nodes",
        problem.cluster.devices_per_node, format_bytes(host), format_bytes(problem.host_budget),
        format_bytes(host - problem.host_budget), heaviest(schedule, MemorySpace::host_pinned)));
  }
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
  text += fmt::format("sequence    {} tokens in {} chunks of {}\n", problem.seq_len, shape.chunks,
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
                      format_bytes(problem.cluster.devices_per_node *
                                   (lowered.placement.of(MemorySpace::host_pinned).arena +
                                    lowered.placement.of(MemorySpace::host).arena)),
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

}  // namespace

int plan_lower(const LowerFlags& flags) {
  std::vector<std::string> notes;
  Problem problem;
  problem.model = load_model(flags.model, &notes);
  for (const std::string& note : notes) say(fmt::format("note: {}\n", note));
  problem.cluster = load_cluster(flags.cluster);
  problem.seq_len = parse_length(flags.seq_len);
  problem.device_budget = parse_budget("--device-budget", flags.device_budget,
                                       problem.cluster.device_memory, "a device");
  problem.host_budget =
      parse_budget("--host-budget", flags.host_budget, problem.cluster.host_memory, "a node");
  const Strategy strategy =
      flags.strategy.empty() ? default_strategy(problem) : load_strategy(flags.strategy);

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
