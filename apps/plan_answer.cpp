// One screen and one object.
#include "plan_answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fpdt/io/json.h"
#include "fpdt/io/problem_json.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/live.h"

#include "command.h"
#include "plan_fit.h"

namespace fpdt {
namespace {

constexpr std::size_t kTypical = static_cast<std::size_t>(RateEnd::typical);

double share(Bytes used, Bytes budget) {
  return static_cast<double>(used.value) /
         static_cast<double>(std::max<std::int64_t>(budget.value, 1));
}

std::string bar(double part) {
  constexpr int kWidth = 40;
  const int filled = std::clamp(static_cast<int>(std::lround(part * kWidth)), 0, kWidth);
  return fmt::format("[{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kWidth - filled), '.'));
}

std::string line(std::string_view key, const std::string& text) {
  return fmt::format("{:<10} {}\n", key, text);
}

// Words of a long text on lines of at most 100 columns, aligned with the first.
std::string wrapped(std::string_view key, const std::string& text) {
  constexpr std::size_t kColumns = 88;
  std::string result;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::size_t end = rest.size() <= kColumns ? rest.size() : rest.rfind(' ', kColumns);
    if (end == std::string_view::npos || end == 0) end = rest.size();
    result += line(result.empty() ? key : "", std::string(rest.substr(0, end)));
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  return result;
}

std::string machine_of(const Problem& problem) {
  const ClusterSpec& cluster = problem.cluster;
  return fmt::format("{} ({} {}{})", cluster.name, cluster.devices(),
                     cluster.devices() == 1 ? "device" : "devices",
                     cluster.nodes > 1 ? fmt::format(" in {} nodes", cluster.nodes) : "");
}

std::string verdict(const Answer& answer) {
  if (!answer.plan) return "DOES NOT FIT";
  constexpr double kTight = 0.95;
  const Usage& need = answer.plan->usage;
  const bool tight = share(need.device, answer.problem.device_budget) > kTight ||
                     share(need.host_node, answer.problem.host_budget) > kTight;
  return tight ? "FITS, TIGHTLY" : "FITS";
}

std::string memory_lines(const Problem& problem, const Plan& plan) {
  const PeakBytes peak = device_peak(plan);
  std::string text =
      line("device",
           fmt::format("{} {} of {} a GPU", bar(share(plan.usage.device, problem.device_budget)),
                       format_bytes(plan.usage.device), format_bytes(problem.device_budget)));
  std::string parts;
  const auto part = [&](std::string_view name, Bytes bytes) {
    if (bytes.value == 0) return;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, format_bytes(bytes));
  };
  part("activations", peak.activations);
  part("staging", peak.staging);
  part("parameters", peak.parameters);
  part("gathered", peak.gathered);
  part("gradients", peak.gradients);
  part("optimizer", peak.optimizer);
  part("other", peak.other);
  part("free in the arena", peak.free);
  part("outside it", problem.cluster.outside_bytes());
  text += wrapped("", "at the peak: " + parts);
  if (const std::string outside = outside_text(problem.cluster); !outside.empty()) {
    text += wrapped("", "outside the arena: " + outside);
  }
  text += line("host",
               fmt::format("{} {} of {} a node, {} a rank",
                           bar(share(plan.usage.host_node, problem.host_budget)),
                           format_bytes(plan.usage.host_node), format_bytes(problem.host_budget),
                           format_bytes(plan.usage.host_rank)));
  const Bytes near{problem.host_budget.value / problem.cluster.numa_nodes};
  if (plan.usage.host_numa > near) {
    text += line("", fmt::format("ranks of one NUMA node hold {} and it has {}: some copies cross "
                                 "sockets, which no second here counts",
                                 format_bytes(plan.usage.host_numa), format_bytes(near)));
  }
  return text;
}

std::string time_lines(const Problem& problem, const Plan& plan) {
  const auto& [slow, typical, fast] = plan.throughput;
  std::string text = line(
      "step", fmt::format("{} ({} to {}), {:.4g} tokens/s a GPU ({:.4g} to {:.4g})",
                          format_seconds(typical.step_seconds), format_seconds(fast.step_seconds),
                          format_seconds(slow.step_seconds), typical.tokens_per_second_per_gpu,
                          slow.tokens_per_second_per_gpu, fast.tokens_per_second_per_gpu));
  const auto percent = [](double low, double middle, double high) {
    return fmt::format("{:.1f} % ({:.1f} to {:.1f})", 100 * middle, 100 * low, 100 * high);
  };
  text += line("MFU", fmt::format("{} causal, {} full square, {} executed (HFU)",
                                  percent(slow.mfu_causal, typical.mfu_causal, fast.mfu_causal),
                                  percent(slow.mfu_full, typical.mfu_full, fast.mfu_full),
                                  percent(slow.hfu, typical.hfu, fast.hfu)));
  text +=
      line("", fmt::format("of {:.4g} TFLOP/s a GPU; attention counted over the causal half, or "
                           "the square",
                           problem.cluster.rates.peak_flops * 1e-12));
  return text;
}

std::string binds_line(const Problem& problem, const Plan& plan) {
  const auto& busy = plan.simulation.busy;
  const auto percent = [&](LaneKind lane) {
    return 100 * static_cast<double>(busy[static_cast<std::size_t>(lane)]) /
           static_cast<double>(std::max<std::int64_t>(plan.simulation.nanoseconds, 1));
  };
  return line("binds",
              fmt::format("{}; lanes busy: compute {:.1f} %, h2d {:.1f} %, d2h {:.1f} %, "
                          "collectives {:.1f} %",
                          word(binding(problem, plan)), percent(LaneKind::compute),
                          percent(LaneKind::h2d), percent(LaneKind::d2h), percent(LaneKind::comm)));
}

// Of the front: the next best that is built otherwise, and at most a tenth slower the ones with the
// least device and the least host memory.
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
    const bool otherwise = one.strategy.fpdt.chunk_tokens != best.strategy.fpdt.chunk_tokens ||
                           one.strategy.fpdt.backward_order != best.strategy.fpdt.backward_order ||
                           one.strategy.data_parallel != best.strategy.data_parallel;
    if (!otherwise) continue;
    add(&one);
    break;
  }
  add(least([](const Candidate& one) { return one.usage.device; }));
  add(least([](const Candidate& one) { return one.usage.host_node; }));
  return shown;
}

std::string alternative_lines(const Answer& answer) {
  std::string text;
  for (const Candidate* one : alternatives(answer)) {
    const Geometry shape = geometry(answer.problem, one->strategy);
    const StoredLayers stored = stored_layers(answer.problem, one->strategy);
    text +=
        line(text.empty() ? "or" : "",
             fmt::format(
                 "{:>10} a step, device {:>8}, host {:>8} a node: {} x {}{}, {} of {} layers "
                 "store attention",
                 format_seconds(static_cast<double>(one->nanoseconds) * 1e-9),
                 format_bytes(one->usage.device), format_bytes(one->usage.host_node), shape.chunks,
                 format_tokens(shape.chunk_rows),
                 shape.data_parallel > 1 ? fmt::format(" in {} replicas", shape.data_parallel) : "",
                 stored.attention + stored.everything, answer.problem.model.layers));
  }
  return text;
}

std::string shortage_lines(const Answer& answer) {
  const Shortage& shortage = *answer.search.shortage;
  std::string text =
      line("binds", fmt::format("{} memory: the least that any strategy takes is {}, there is {}",
                                word(shortage.binding), format_bytes(shortage.need),
                                format_bytes(shortage.have)));
  for (const Nearest& nearest : answer.nearest) {
    text += line(
        &nearest == &answer.nearest.front() ? "fits" : "",
        nearest.flag.empty() ? nearest.what : fmt::format("{:<42} {}", nearest.what, nearest.flag));
  }
  if (answer.nearest.empty()) text += line("fits", "nothing near");
  return text;
}

// Numbers that are not known, which are those of what is not lowered, are null.
std::string prediction_json(const Problem& problem, const Usage& usage,
                            const std::array<Throughput, 3>& throughput,
                            const std::optional<PeakBytes>& peak) {
  const Throughput& now = throughput[kTypical];
  const auto range = [&](double Throughput::*field) {
    return fmt::format("[{},{}]", json_number(throughput.front().*field),
                       json_number(throughput.back().*field));
  };
  const auto part = [&](Bytes PeakBytes::*field) {
    return peak ? fmt::format("{}", ((*peak).*field).value) : "null";
  };
  return fmt::format(
      R"({{"device_peak_bytes":{},"host_peak_bytes_per_rank":{},"host_peak_bytes_per_node":{},)"
      R"("host_peak_bytes_per_numa_node":{},"outside_arena_bytes":{},)"
      R"("outside_workspace_bytes":{},)"
      R"("step_seconds":{},"step_seconds_slow_fast":{},)"
      R"("tokens_per_second_per_gpu":{},"mfu_causal":{},"mfu_causal_slow_fast":{},"mfu_full":{},)"
      R"("mfu_full_slow_fast":{},"hfu":{},"device_bytes":{{"parameters":{},"gathered":{},)"
      R"("gradients":{},"optimizer":{},"activations":{},"staging":{},"other":{},"free":{}}}}})",
      usage.arena.value, usage.host_rank.value, usage.host_node.value, usage.host_numa.value,
      problem.cluster.outside_bytes().value, problem.cluster.outside.workspace.value,
      json_number(now.step_seconds), range(&Throughput::step_seconds),
      json_number(now.tokens_per_second_per_gpu), json_number(now.mfu_causal),
      range(&Throughput::mfu_causal), json_number(now.mfu_full), range(&Throughput::mfu_full),
      json_number(now.hfu), part(&PeakBytes::parameters), part(&PeakBytes::gathered),
      part(&PeakBytes::gradients), part(&PeakBytes::optimizer), part(&PeakBytes::activations),
      part(&PeakBytes::staging), part(&PeakBytes::other), part(&PeakBytes::free));
}

std::string strategy_object(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const StoredLayers stored = stored_layers(problem, strategy);
  return fmt::format(
      R"({{"method":"{}","ranks":{},"sequence_parallel":{},"data_parallel":{},"chunk_tokens":{},)"
      R"("chunks":{},"checkpoint_every":{},"layers_storing_attention":{},)"
      R"("layers_storing_everything":{},"optimizer_offload":{},"words":{},"settings":{}}})",
      shape.chunks == 1 ? "ulysses" : "fpdt", problem.ranks(), shape.sequence_parallel,
      shape.data_parallel, shape.chunk_rows, shape.chunks, strategy.fpdt.checkpoint_every,
      stored.attention, stored.everything, strategy.optimizer_offload,
      json_string(in_words(problem, strategy)), strategy_json(strategy));
}

// The Pareto front: time of a step, device and host memory; ascending time.
std::string front_json(const Answer& answer) {
  std::string text;
  for (const Candidate& one : answer.search.front) {
    text += fmt::format(
        R"({}{{"step_seconds":{},"device_bytes":{},"host_bytes_per_node":{},"chunk_tokens":{},)"
        R"("data_parallel":{},"words":{}}})",
        text.empty() ? "" : ",", json_number(static_cast<double>(one.nanoseconds) * 1e-9),
        one.usage.device.value, one.usage.host_node.value, one.strategy.fpdt.chunk_tokens,
        one.strategy.data_parallel, json_string(in_words(answer.problem, one.strategy)));
  }
  return text;
}

std::string infeasible_json(const Answer& answer) {
  const Shortage& shortage = *answer.search.shortage;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::array<Throughput, 3> unknown;
  unknown.fill({kNone, kNone, kNone, kNone, kNone});
  std::string nearest;
  for (const Nearest& one : answer.nearest) {
    nearest += fmt::format(R"({}{{"what":{},"flag":{}}})", nearest.empty() ? "" : ",",
                           json_string(one.what), json_string(one.flag));
  }
  return fmt::format(
      R"("verdict":"infeasible","binding":"{}","need_bytes":{},"have_bytes":{},"nearest":[{}],)"
      R"("strategy":{},"prediction":{})",
      word(shortage.binding), shortage.need.value, shortage.have.value, nearest,
      strategy_object(answer.problem, shortage.closest),
      prediction_json(answer.problem, usage(answer.problem, shortage.closest), unknown,
                      std::nullopt));
}

}  // namespace

PeakBytes device_peak(const Plan& plan) {
  const Schedule& schedule = plan.lowered.schedule.schedule();
  const Program program(schedule);
  const Live live = find_live({&program, &schedule.train, &plan.simulation.trace});
  const LivePeak peak = find_peak(live, MemorySpace::device);
  PeakBytes bytes;
  for (const LiveBuffer& one : peak.buffers) {
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(one.buffer)];
    const bool state = buffer.role == Role::state;
    switch (buffer.category) {
      case Category::weights:
        (state ? bytes.parameters : bytes.gathered) += one.bytes;
        break;
      case Category::gradients:
        (state ? bytes.gradients : bytes.gathered) += one.bytes;
        break;
      case Category::optimizer:
        bytes.optimizer += one.bytes;
        break;
      case Category::activations:
        bytes.activations += one.bytes;
        break;
      case Category::communication:
        bytes.staging += one.bytes;
        break;
      case Category::tokens:
      case Category::scalars:
        bytes.other += one.bytes;
        break;
    }
  }
  bytes.free = plan.usage.arena - peak.bytes;
  return bytes;
}

std::string format_seconds(double seconds) {
  return format_nanoseconds(std::llround(seconds * 1e9));
}

std::string answer_text(const Answer& answer, const std::string& out_dir) {
  const Problem& problem = answer.problem;
  std::string text = fmt::format("{}: {}, {} tokens on {}\n\n", verdict(answer), problem.model.name,
                                 format_tokens(problem.seq_len), machine_of(problem));
  if (answer.longest && answer.plan) {
    text += line("longest",
                 fmt::format("{} ({} tokens)", format_tokens(*answer.longest), *answer.longest));
  }
  if (!answer.plan) return text + shortage_lines(answer);
  const Plan& plan = *answer.plan;
  text += wrapped("strategy", in_words(problem, plan.strategy));
  text += memory_lines(problem, plan);
  text += time_lines(problem, plan);
  text += binds_line(problem, plan);
  text += alternative_lines(answer);
  text += line("search", fmt::format("{} candidates, {} simulated, {}", answer.search.candidates,
                                     answer.search.simulated, format_seconds(answer.seconds)));
  if (out_dir.empty()) {
    return text + line("next", "the same with --out-dir DIR writes the plan and its schedule");
  }
  text += line("wrote", fmt::format("{0}/plan.yaml, {0}/schedule.json", out_dir));
  text += line("next", fmt::format("fpdt-plan draw {}/schedule.json --out step.html", out_dir));
  return text;
}

std::string answer_json(const Answer& answer) {
  std::string body;
  if (answer.plan) {
    body = fmt::format(R"("verdict":"fits","binding":"{}","strategy":{},"prediction":{})",
                       word(binding(answer.problem, *answer.plan)),
                       strategy_object(answer.problem, answer.plan->strategy),
                       prediction_json(answer.problem, answer.plan->usage, answer.plan->throughput,
                                       device_peak(*answer.plan)));
  } else {
    body = infeasible_json(answer);
  }
  return fmt::format(
      R"({{"schema":"fpdt.search/1",{}{},"front":[{}],)"
      R"("search":{{"candidates":{},"simulated":{},"seconds":{}}},)"
      R"("model":{{"name":{},"parameters":{}}},"seq_len":{},"documents":{}}})"
      "\n",
      body, answer.longest ? fmt::format(R"(,"max_seq_len":{})", *answer.longest) : "",
      front_json(answer), answer.search.candidates, answer.search.simulated,
      json_number(answer.seconds), json_string(answer.problem.model.name),
      parameter_count(answer.problem.model), answer.problem.seq_len, answer.problem.documents);
}

std::string plan_yaml(const Answer& answer) {
  const Plan& plan = *answer.plan;
  const Throughput& now = plan.throughput[kTypical];
  std::string text = fmt::format(
      "# {} at {} tokens{} on {}.\n# {}.\n# Device {} (arena {}), host {} a node; step {}, MFU "
      "{:.1f} "
      "% causal, {:.1f} % full square.\n# Give it back with --strategy; any line may be changed.\n",
      answer.problem.model.name, format_tokens(answer.problem.seq_len),
      answer.problem.documents ? "" : " of one document", machine_of(answer.problem),
      in_words(answer.problem, plan.strategy), format_bytes(plan.usage.device),
      format_bytes(plan.usage.arena), format_bytes(plan.usage.host_node),
      format_seconds(now.step_seconds), 100 * now.mfu_causal, 100 * now.mfu_full);
  return text + print_strategy(plan.strategy);
}

}  // namespace fpdt
