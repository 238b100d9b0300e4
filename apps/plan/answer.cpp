// Writes an answer as one screen of text and as one JSON object.
#include "plan/answer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/problem_json.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/live.h"

#include "common/command.h"
#include "plan/figures.h"
#include "plan/shortage.h"

namespace fpdt {
namespace {

double share(Bytes used, Bytes budget) {
  return static_cast<double>(used.value) /
         static_cast<double>(std::max<std::int64_t>(budget.value, 1));
}

std::string bar(double part) {
  constexpr int kWidth = 32;
  const int filled = std::clamp(static_cast<int>(std::lround(part * kWidth)), 0, kWidth);
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kWidth - filled), '.'));
}

std::string machine_of(const Problem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  return fmt::format("{} ({} {}{})", cluster.name, cluster.devices(),
                     cluster.devices() == 1 ? "device" : "devices",
                     cluster.nodes > 1 ? fmt::format(" in {} nodes", cluster.nodes) : "");
}

using Named = std::pair<std::string_view, Bytes>;

// "context 1.00 GiB, libraries 128 MiB": without what has no bytes.
std::string parts_text(const std::vector<Named>& parts) {
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes.value == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return text;
}

// The parts of the device's peak, as text and JSON name them.
constexpr std::array<std::pair<std::string_view, Bytes PeakBytes::*>, 7> kPeakParts{
    {{"activations", &PeakBytes::activations},
     {"staging", &PeakBytes::staging},
     {"parameters", &PeakBytes::parameters},
     {"gathered", &PeakBytes::gathered},
     {"gradients", &PeakBytes::gradients},
     {"optimizer", &PeakBytes::optimizer},
     {"other", &PeakBytes::other}}};

std::string memory_lines(const Problem& problem, const Plan& plan) {
  const PeakBytes peak = device_peak(plan);
  std::string text = line(
      "device", fmt::format("{} {} of {} budget per GPU",
                            bar(share(plan.usage.device, problem.device_budget)),
                            format_bytes(plan.usage.device), format_bytes(problem.device_budget)));
  std::vector<Named> named;
  for (const auto& [name, bytes] : kPeakParts) named.emplace_back(name, peak.*bytes);
  text += wrapped("", fmt::format("arena {}, of which at most {} live at once: {}",
                                  format_bytes(plan.usage.arena),
                                  format_bytes(plan.usage.arena - peak.free), parts_text(named)));
  if (const std::string outside = outside_text(problem.cluster, plan.usage); !outside.empty()) {
    text += wrapped(
        "", fmt::format("outside the arena {}: {}", format_bytes(plan.usage.outside), outside));
  }
  text += line("host",
               fmt::format("{} {} of {} budget per node, {} per rank",
                           bar(share(plan.usage.host_node, problem.host_budget)),
                           format_bytes(plan.usage.host_node), format_bytes(problem.host_budget),
                           format_bytes(plan.usage.host_rank)));
  text += wrapped("", checkpoint_text(plan.usage));
  text += wrapped("", host_outside_text(problem.cluster));
  if (!fits_numa_nodes(problem, plan.usage)) text += wrapped("", numa_text(problem, plan.usage));
  return text;
}

std::string time_lines(const Problem& problem, const Plan& plan) {
  const auto& [slow, typical, fast] = plan.throughput;
  std::string text =
      line("step", fmt::format("{} ({} to {}), {} tokens/s per GPU ({} to {})",
                               format_seconds(typical.step_seconds),
                               format_seconds(fast.step_seconds), format_seconds(slow.step_seconds),
                               format_throughput(typical.tokens_per_second_per_gpu),
                               format_throughput(slow.tokens_per_second_per_gpu),
                               format_throughput(fast.tokens_per_second_per_gpu)));
  text += wrapped("", long_step_text(typical.step_seconds));
  const auto percent = [](double low, double middle, double high) {
    return fmt::format("{:.1f} % ({:.1f} to {:.1f})", 100 * middle, 100 * low, 100 * high);
  };
  text += line("MFU", fmt::format("{} causal, {} as published papers count",
                                  percent(slow.mfu_causal, typical.mfu_causal, fast.mfu_causal),
                                  percent(slow.mfu_full, typical.mfu_full, fast.mfu_full)));
  text +=
      line("", fmt::format("of {:.4g} TFLOP/s per GPU; papers count the full square of attention, "
                           "not its causal half",
                           problem.cluster.rates.peak_flops * 1e-12));
  text += line("HFU", fmt::format("{}: all executed flops, with recomputation",
                                  percent(slow.hfu, typical.hfu, fast.hfu)));
  return text + wrapped("rates", problem.cluster.source);
}

std::string limit_line(const Problem& problem, const Plan& plan) {
  const auto& busy = plan.simulation.busy;
  const auto percent = [&](LaneKind lane) {
    return 100 * static_cast<double>(busy[static_cast<std::size_t>(lane)]) /
           static_cast<double>(std::max<std::int64_t>(plan.simulation.nanoseconds, 1));
  };
  const Binding limit = binding(problem, plan);
  const auto shorter = need_of_shorter_segments(problem, plan.strategy);
  const bool segments = shorter && shorter->memory == limit;
  return wrapped("limited by",
                 fmt::format("{}{}; lanes busy: compute {:.1f} %, h2d {:.1f} %, d2h {:.1f} %, "
                             "collectives {:.1f} %",
                             word(limit),
                             segments ? fmt::format(" memory: shorter segments of layers need {}",
                                                    format_bytes(shorter->need))
                                      : "",
                             percent(LaneKind::compute), percent(LaneKind::h2d),
                             percent(LaneKind::d2h), percent(LaneKind::comm)));
}

// Empty for one rank.
std::string sent_line(const Problem& problem, const Traffic& sent) {
  if (problem.ranks() == 1) return "";
  std::string text =
      fmt::format("by each rank in a step: {} to its node", format_bytes(Bytes{sent.node}));
  if (problem.cluster.nodes > 1) {
    text += fmt::format(", {} to other nodes", format_bytes(Bytes{sent.network}));
  }
  return line("sent", text);
}

// The next best of the front that is built otherwise, and those with the least device memory and
// the least host memory that are at most a tenth slower.
std::vector<const Candidate*> alternatives(const Answer& answer) {
  const std::vector<Candidate>& front = answer.search.front;
  const Candidate& best = *answer.search.best;
  std::vector<const Candidate*> shown;
  const auto add = [&](const Candidate* one) {
    if (one == nullptr || one->strategy == best.strategy) return;
    if (std::find(shown.begin(), shown.end(), one) == shown.end()) shown.push_back(one);
  };
  const auto least = [&](auto&& bytes) {
    const Candidate* found = nullptr;
    for (const Candidate& one : front) {
      constexpr double kWorth = 1.1;
      if (cost(one) > kWorth * cost(best)) continue;
      if (found == nullptr || bytes(one) < bytes(*found)) found = &one;
    }
    return found;
  };
  for (const Candidate& one : front) {
    const bool otherwise =
        one.strategy.tiles.chunk_tokens != best.strategy.tiles.chunk_tokens ||
        one.strategy.tiles.backward_order != best.strategy.tiles.backward_order ||
        one.strategy.mesh != best.strategy.mesh || one.strategy.keys != best.strategy.keys;
    if (!otherwise) continue;
    add(&one);
    break;
  }
  add(least([](const Candidate& one) { return one.usage.device; }));
  add(least([](const Candidate& one) { return one.usage.host_node; }));
  std::stable_sort(shown.begin(), shown.end(),
                   [](const Candidate* a, const Candidate* b) { return cost(*a) < cost(*b); });
  return shown;
}

std::string ring_words(const Geometry& shape) {
  if (shape.ring == 1) return "";
  return shape.hops > 1 ? ", keys around a ring" : ", keys gathered";
}

std::string alternative_lines(const Answer& answer) {
  std::string text;
  for (const Candidate* one : alternatives(answer)) {
    if (text.empty()) {
      text = line("other fits", fmt::format("{:>11} {:>9} {:>9}  {:>6}  chunks, layers", "step",
                                            "device", "host", "--take"));
    }
    const Geometry shape = geometry(answer.problem, one->strategy);
    const std::int64_t storing = layers_storing_attention(answer.problem, one->strategy) +
                                 stored_layers(answer.problem, one->strategy).everything;
    text += wrapped(
        "",
        fmt::format(
            "{:>11} {:>9} {:>9}  {:>6}  {} x {}{}{}, {} of {} store attention",
            format_seconds(static_cast<double>(one->nanoseconds) * 1e-9),
            format_bytes(one->usage.device), format_bytes(one->usage.host_node),
            1 + (one - answer.search.front.data()), shape.chunks, format_tokens(shape.chunk_rows),
            shape.data_parallel > 1 ? fmt::format(" in {} replicas", shape.data_parallel) : "",
            ring_words(shape), storing, answer.problem.model.layers));
  }
  return text;
}

Json prediction_json(const Problem& problem, const Plan& plan) {
  const Usage& usage = plan.usage;
  const PeakBytes peak = device_peak(plan);
  Json object{{"device_peak_bytes", usage.arena.value}};
  object.update(host_json(problem, usage));
  object["outside_arena_bytes"] = usage.outside.value;
  object["outside_workspace_bytes"] = problem.cluster.outside.workspace.value;
  object["outside_page_tables_bytes"] = usage.mapping.value;
  object["host_outside_bytes"] = problem.cluster.host_outside_bytes().value;
  object.update(speed_json(plan.throughput));
  object["sent_bytes_per_rank"] = {{"node", plan.sent.node}, {"network", plan.sent.network}};
  if (problem.model.has_experts()) {
    object["experts"] =
        experts_json(experts_traffic(problem, plan.strategy, plan.lowered.schedule.schedule()));
  }
  Json& parts = object["device_bytes"];
  for (const auto& [name, bytes] : kPeakParts) parts[std::string(name)] = (peak.*bytes).value;
  parts["free"] = peak.free.value;
  return object;
}

Json strategy_object(const Problem& problem, const Strategy& strategy) {
  Json object = shape_json(problem, strategy);
  object.update({{"optimizer_offload", strategy.offloads_states()},
                 {"words", in_words(problem, strategy)},
                 {"settings", Json::parse(strategy_json(strategy))}});
  return object;
}

// The Pareto front: time of a step, device and host memory; ascending time. --take counts them.
Json front_json(const Answer& answer) {
  Json list = Json::array();
  for (const Candidate& one : answer.search.front) {
    list.push_back({{"step_seconds", static_cast<double>(one.nanoseconds) * 1e-9},
                    {"device_bytes", one.usage.device.value},
                    {"host_bytes_per_node", one.usage.host_node.value},
                    {"chunk_tokens", one.strategy.tiles.chunk_tokens},
                    {"data_parallel", one.strategy.mesh.replicas},
                    {"words", in_words(answer.problem, one.strategy)},
                    {"settings", Json::parse(strategy_json(one.strategy))}});
  }
  return list;
}

// How far the step is from the shortest that is not ruled out.
std::string bound_line(const Answer& answer) {
  const double step = answer.plan->throughput[kTypicalCase].step_seconds;
  const double bound = answer.search.bound.step_seconds;
  return wrapped("bound", fmt::format("no step is shorter than {}: this one is within {:.1f} %",
                                      format_seconds(bound), 100 * (step / bound - 1)));
}

// Empty if more memory does not help.
std::string price_line(const SearchResult& found) {
  std::string text;
  const auto add = [&](const Price& price, std::string_view where) {
    if (!(price.step_seconds > 0)) return;
    text += fmt::format("{}{} more {}: {} a step less", text.empty() ? "" : "; ",
                        format_bytes(price.more), where, format_seconds(price.step_seconds));
  };
  add(found.host, "host memory per node");
  add(found.device, "per GPU");
  return text.empty() ? "" : wrapped("memory", text);
}

// Empty where all GPUs are faster than some of them.
std::string fewer_line(const Answer& answer) {
  if (!answer.fewer) return "";
  const Fewer& few = *answer.fewer;
  const double step = static_cast<double>(answer.search.best->nanoseconds) * 1e-9;
  return wrapped("fewer",
                 fmt::format("{} {} take {}, {:.1f} % less: --gpus {}", few.devices,
                             few.devices == 1 ? "GPU" : "GPUs", format_seconds(few.step_seconds),
                             100 * (1 - few.step_seconds / step), few.devices));
}

Json fewer_json(const std::optional<Fewer>& few) {
  if (!few) return nullptr;
  return {{"gpus", few->devices}, {"nodes", few->nodes}, {"step_seconds", few->step_seconds}};
}

Json price_json(const Price& price) {
  return {{"bytes", price.more.value}, {"step_seconds", price.step_seconds}};
}

Json feasible_json(const Answer& answer) {
  const Plan& plan = *answer.plan;
  return {{"verdict", "fits"},
          {"binding", word(binding(answer.problem, plan))},
          {"strategy", strategy_object(answer.problem, plan.strategy)},
          {"prediction", prediction_json(answer.problem, plan)}};
}

Json infeasible_json(const Answer& answer) {
  const Shortage& shortage = *answer.search.shortage;
  Json object{{"verdict", "infeasible"}, {"binding", word(shortage.binding)}};
  object.update(shortage_json(answer));
  object.update(
      {{"strategy", strategy_object(answer.problem, shortage.closest)}, {"prediction", nullptr}});
  return object;
}

}  // namespace

std::string line(std::string_view key, const std::string& text) {
  return fmt::format("{:<10} {}\n", key, text);
}

std::string wrapped(std::string_view key, const std::string& text, std::size_t width) {
  constexpr std::size_t kLeast = 20;
  const std::size_t room = output_columns() - 2;
  const std::size_t columns = std::max(room, width + kLeast) - width;
  std::string result;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::size_t end = rest.size() <= columns ? rest.size() : rest.rfind(' ', columns);
    if (end == std::string_view::npos || end == 0) end = rest.size();
    result += fmt::format("{:<{}} {}\n", result.empty() ? key : "", width, rest.substr(0, end));
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  return result;
}

std::string numa_text(const Problem& problem, const Usage& usage) {
  return fmt::format(
      "ranks of one NUMA node hold {}, but it has {}: some copies cross sockets, which predicted "
      "times do not include",
      format_bytes(usage.host_numa), format_bytes(numa_budget(problem)));
}

std::string checkpoint_text(const Usage& usage) {
  return fmt::format("to load {} of it, {} per rank; to save {}, {} in the writer",
                     format_bytes(usage.loading.node), format_bytes(usage.loading.rank),
                     format_bytes(usage.saving.node), format_bytes(usage.saving.rank));
}

Json host_json(const Problem& problem, const Usage& usage) {
  return {{"host_peak_bytes_per_rank", usage.host_rank.value},
          {"host_peak_bytes_per_node", usage.host_node.value},
          {"host_peak_bytes_per_numa_node", usage.host_numa.value},
          {"host_fits_numa_nodes", fits_numa_nodes(problem, usage)},
          {"host_loading_bytes_per_rank", usage.loading.rank.value},
          {"host_loading_bytes_per_node", usage.loading.node.value},
          {"host_saving_bytes_per_rank", usage.saving.rank.value},
          {"host_saving_bytes_per_node", usage.saving.node.value}};
}

std::string outside_text(const ClusterSpec& cluster, const Usage& usage) {
  const OutsideArena& outside = cluster.outside;
  const Bytes known = outside.context + outside.libraries + outside.workspace + usage.mapping;
  return parts_text({{"context", outside.context},
                     {"libraries", outside.libraries},
                     {"workspace of kernels", outside.workspace},
                     {"communicator", usage.outside - known},
                     {"page tables", usage.mapping}});
}

std::string host_outside_text(const ClusterSpec& cluster) {
  const OutsideHost& outside = cluster.host_outside;
  const std::string parts = parts_text({{"system", outside.system},
                                        {"page tables", outside.page_tables},
                                        {"processes", cluster.devices_per_node * outside.process},
                                        {"loaders", cluster.devices_per_node * outside.loader}});
  return fmt::format("of the {} of a node, {} lie outside{}{}", format_bytes(cluster.host_memory),
                     format_bytes(cluster.host_outside_bytes()), parts.empty() ? "" : ": ", parts);
}

PeakBytes device_peak(const Plan& plan) {
  const Schedule& schedule = plan.lowered.schedule.schedule();
  const Program program(schedule);
  const Live live = find_live({&program, &schedule.train, &plan.simulation.trace});
  const LivePeak peak = find_peak(live, MemorySpace::device);
  const auto part = [&](Part which) { return Bytes{peak.parts[static_cast<std::size_t>(which)]}; };
  PeakBytes bytes;
  bytes.parameters = part(Part::parameters);
  bytes.gathered = part(Part::gathered);
  bytes.gradients = part(Part::gradients);
  bytes.optimizer = part(Part::optimizer);
  bytes.activations = part(Part::activations);
  bytes.staging = part(Part::staging);
  bytes.other = part(Part::other);
  bytes.free = plan.usage.arena - peak.bytes;
  return bytes;
}

std::string verdict(const Answer& answer) {
  if (!answer.plan) return proven_infeasible(answer) ? "DOES NOT FIT:" : "NO PLAN FOUND:";
  constexpr double kTight = 0.95;
  const Usage& need = answer.plan->usage;
  const bool tight = share(need.device, answer.problem.device_budget) > kTight ||
                     share(need.host_node, answer.problem.host_budget) > kTight;
  return tight ? "FITS, TIGHTLY:" : "FITS:";
}

std::string answer_text(const Answer& answer, const std::string& out_dir,
                        const std::string& weights) {
  const Problem& problem = answer.problem;
  std::string text = fmt::format(" {}, {} tokens on {}\n\n", problem.model.name,
                                 format_tokens(problem.seq_len), machine_of(problem));
  if (answer.longest && answer.plan) {
    text += line("longest",
                 fmt::format("{} ({} tokens)", format_tokens(*answer.longest), *answer.longest));
  }
  const std::string& plan_only = problem.cluster.plan_only;
  if (!plan_only.empty()) text += wrapped("plan only", plan_only);
  const std::string pattern = pattern_in_words(problem.model);
  if (!pattern.empty()) text += wrapped("layers", pattern);
  if (!answer.plan) return text + shortage_text(answer);
  const Plan& plan = *answer.plan;
  text += wrapped("strategy", in_words(problem, plan.strategy));
  text += memory_lines(problem, plan);
  text += time_lines(problem, plan);
  if (answer.wasted && wastes(*answer.wasted)) {
    text += wrapped("waste", waste_beside(problem, plan, *answer.wasted));
  }
  text += limit_line(problem, plan);
  text += sent_line(problem, plan.sent);
  if (problem.model.has_experts() && problem.ranks() > 1) {
    text += wrapped("experts", experts_text(experts_traffic(problem, plan.strategy,
                                                            plan.lowered.schedule.schedule())));
  }
  text += bound_line(answer);
  text += price_line(answer.search);
  text += fewer_line(answer);
  text += alternative_lines(answer);
  text += line("search", fmt::format("{} candidates, {} simulated, {}", answer.search.candidates,
                                     answer.search.simulated, format_seconds(answer.seconds)));
  if (out_dir.empty()) {
    return text + line("next", "write the plan and its schedule: add --out-dir DIR");
  }
  text += line("wrote", fmt::format("{0}/plan.yaml, {0}/schedule.json", out_dir));
  text +=
      line("next",
           fmt::format("draw the step: fpdt-plan draw {}/schedule.json --draw step.html", out_dir));
  if (!plan_only.empty()) return text;
  text += line("", fmt::format("train with it: fpdt-run train {}/schedule.json{}{} --data FILE "
                               "--steps 100",
                               out_dir, weights.empty() ? "" : fmt::format(" --init {}", weights),
                               problem.cluster.has_gpus() ? " --backend cuda" : ""));
  return text;
}

std::string answer_json(const Answer& answer) {
  Json object{{"schema", "fpdt.search/1"}};
  object.update(answer.plan ? feasible_json(answer) : infeasible_json(answer));
  const std::string& plan_only = answer.problem.cluster.plan_only;
  object["plan_only"] = plan_only.empty() ? Json() : Json(plan_only);
  object["waste"] = waste_json(answer.wasted);
  if (answer.longest) object["max_seq_len"] = *answer.longest;
  object.update({{"front", front_json(answer)},
                 {"search",
                  {{"candidates", answer.search.candidates},
                   {"simulated", answer.search.simulated},
                   {"bound_seconds", answer.search.bound.step_seconds},
                   {"more_host", price_json(answer.search.host)},
                   {"more_device", price_json(answer.search.device)},
                   {"fewer_gpus", fewer_json(answer.fewer)},
                   {"seconds", answer.seconds}}},
                 {"model",
                  {{"name", answer.problem.model.name},
                   {"pattern", pattern_in_words(answer.problem.model)},
                   {"parameters", parameter_count(answer.problem.model)},
                   {"active_parameters", active_parameter_count(answer.problem.model)}}},
                 {"seq_len", answer.problem.seq_len},
                 {"documents", answer.problem.documents}});
  return json_line(object);
}

std::string plan_yaml(const Answer& answer) {
  const Plan& plan = *answer.plan;
  const Throughput& now = plan.throughput[kTypicalCase];
  std::string text = fmt::format(
      "# {} at {} tokens{} on {}.\n# {}.\n# Device {} (arena {}), host {} per node; step {}, MFU "
      "{:.1f} % causal ({:.1f} % as published papers count).\n# Use it with --strategy; any line "
      "may be changed.\n",
      answer.problem.model.name, format_tokens(answer.problem.seq_len),
      answer.problem.documents ? "" : " of one document", machine_of(answer.problem),
      in_words(answer.problem, plan.strategy), format_bytes(plan.usage.device),
      format_bytes(plan.usage.arena), format_bytes(plan.usage.host_node),
      format_seconds(now.step_seconds), 100 * now.mfu_causal, 100 * now.mfu_full);
  return text + print_strategy(plan.strategy);
}

}  // namespace fpdt
