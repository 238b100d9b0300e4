// Texts and JSON of outcomes.
#include "plan/figures.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/problem_json.h"
#include "fpdt/plan/experts_traffic.h"
#include "fpdt/report/axis.h"

namespace fpdt {
namespace {

constexpr double kHour = 3600;

// "13 h", "1 day 5 h", "155 days", "3.4 years".
std::string days_text(double seconds) {
  constexpr double kDay = 24 * kHour, kYear = 365 * kDay;
  if (seconds >= 2 * kYear) return fmt::format("{:.1f} years", seconds / kYear);
  if (seconds >= 10 * kDay) return fmt::format("{:.0f} days", seconds / kDay);
  const auto hours = static_cast<std::int64_t>(seconds / kHour + 0.5);
  const std::int64_t days = hours / 24;
  if (days == 0) return fmt::format("{} h", hours);
  return fmt::format("{} {} {} h", days, days == 1 ? "day" : "days", hours % 24);
}

}  // namespace

std::string format_change(Bytes now, Bytes before) {
  if (now == before) return "0";
  return now < before ? fmt::format("-{}", format_bytes(before - now))
                      : fmt::format("+{}", format_bytes(now - before));
}

std::string verdict_text(const Outcome& outcome) {
  return outcome.fits ? "fits" : fmt::format("no: {}", word(outcome.binding));
}

std::string long_step_text(double seconds) {
  if (seconds <= 12 * kHour) return "";
  return fmt::format(
      "a step takes {}: 100 steps take {}. More GPUs or a shorter sequence make it shorter",
      days_text(seconds), days_text(100 * seconds));
}

std::string need_text(const Pins& pins, Bytes need, Bytes have) {
  const std::string who = pins.strategy ? "the strategy needs"
                          : pins.method
                              ? fmt::format("the least found of {} needs", pins.method->title)
                              : "the least found needs";
  return fmt::format("{} {}, and there is {}", who, format_bytes(need), format_bytes(have));
}

bool wastes(const Wasted& wasted) {
  return wasted.device.value > 0 || wasted.host_rank.value > 0 || wasted.step_seconds > 0;
}

std::string waste_text(const Wasted& wasted) {
  return fmt::format("its implementation wastes {} of a device, {} of a host per rank and {}",
                     format_bytes(wasted.device), format_bytes(wasted.host_rank),
                     format_seconds(wasted.step_seconds));
}

std::string waste_beside(const Problem& problem, const Plan& plan, const Wasted& wasted) {
  Usage usage = plan.usage;
  std::array<Throughput, 3> throughput = plan.throughput;
  add_waste(problem, wasted, usage, throughput);
  const Throughput& typical = throughput[kTypicalCase];
  return fmt::format(
      "not included: {}; with it, {} of a device, {} of a node, {}, {} tokens/s per GPU{}",
      waste_text(wasted), format_bytes(usage.device), format_bytes(usage.host_node),
      format_seconds(typical.step_seconds), format_throughput(typical.tokens_per_second_per_gpu),
      within(problem, usage) ? "" : ", which does not fit");
}

Json waste_json(const std::optional<Wasted>& wasted) {
  if (!wasted) return {};
  return {{"device_bytes", wasted->device.value},
          {"host_bytes_per_rank", wasted->host_rank.value},
          {"step_seconds", wasted->step_seconds}};
}

std::string mfu_text(const Outcome& outcome) {
  const Throughput& now = outcome.throughput[kTypicalCase];
  return fmt::format("{:.1f} / {:.1f} %", 100 * now.mfu_causal, 100 * now.mfu_full);
}

Json shape_json(const Problem& problem, const Strategy& strategy) {
  const Geometry shape = geometry(problem, strategy);
  const StoredLayers stored = stored_layers(problem, strategy);
  const Method* method = method_of(problem, strategy);
  return {{"method", method ? Json(method->name) : Json()},
          {"ranks", problem.ranks()},
          {"mesh",
           {{"replicas", shape.data_parallel},
            {"ring", shape.ring},
            {"heads", shape.head_ranks()},
            {"tensor", strategy.mesh.tensor}}},
          {"sequence_parallel", shape.sequence_parallel},
          {"data_parallel", shape.data_parallel},
          {"chunk_tokens", shape.chunk_rows},
          {"chunks", shape.chunks},
          {"segments", strategy.segments},
          {"layers_storing_attention", layers_storing_attention(problem, strategy)},
          {"layers_storing_everything", stored.everything}};
}

Json speed_json(const std::array<Throughput, 3>& throughput) {
  const auto& [slow, typical, fast] = throughput;
  return {{"step_seconds", typical.step_seconds},
          {"step_seconds_slow_fast", {slow.step_seconds, fast.step_seconds}},
          {"tokens_per_second_per_gpu", typical.tokens_per_second_per_gpu},
          {"mfu_causal", typical.mfu_causal},
          {"mfu_causal_slow_fast", {slow.mfu_causal, fast.mfu_causal}},
          {"mfu_full", typical.mfu_full},
          {"mfu_full_slow_fast", {slow.mfu_full, fast.mfu_full}},
          {"hfu", typical.hfu}};
}

Json outcome_json(const Problem& problem, const Outcome& outcome) {
  Json object{{"verdict", outcome.fits ? "fits" : "infeasible"},
              {"binding", word(outcome.binding)}};
  object.update(shape_json(problem, outcome.strategy));
  object.update(speed_json(outcome.throughput));
  object.update(
      {{"sequence_seconds", outcome.sequence_seconds[kTypicalCase]},
       {"device_peak_bytes", outcome.usage.arena.value},
       {"outside_arena_bytes", outcome.usage.outside.value},
       {"outside_workspace_bytes", problem.cluster.outside.workspace.value},
       {"outside_page_tables_bytes", outcome.usage.mapping.value},
       {"host_peak_bytes_per_node", outcome.usage.host_node.value},
       {"sent_bytes_per_rank", {{"node", outcome.sent.node}, {"network", outcome.sent.network}}},
       {"strategy", in_words(problem, outcome.strategy)},
       {"settings", Json::parse(strategy_json(outcome.strategy))}});
  if (outcome.experts) object["experts"] = experts_json(*outcome.experts);
  return object;
}

std::string experts_text(const ExpertsTraffic& sent) {
  const auto crossing = [&]() -> std::string {
    if (sent.crossing > 0) {
      return fmt::format("Gathering sends less once a rank has {} tokens; here it has {}",
                         format_tokens(sent.crossing), format_tokens(sent.tokens_of_rank));
    }
    const Bytes open{sent.loops.open_tiles};
    if (open.value == 0) return "Each slice meets all rows of a chunk at once";
    if (sent.loop == ExpertLoop::tiles) {
      return fmt::format(
          "Each tile of rows gathers all slices; with slices outside {} would be gathered, and "
          "open tiles take {} more of the device",
          format_bytes(Bytes{sent.loops.slices_outside}), format_bytes(open));
    }
    return fmt::format(
        "Each slice meets all tiles of rows; with tiles outside {} would be gathered, and open "
        "tiles take {} less of the device",
        format_bytes(Bytes{sent.loops.tiles_outside}), format_bytes(open));
  };
  return fmt::format(
      "gathered: {} of what is sent; tokens sent to experts on their ranks would be {} with equal "
      "load. {}",
      format_bytes(Bytes{sent.gathered}), format_bytes(Bytes{sent.tokens}), crossing());
}

Json experts_json(const ExpertsTraffic& sent) {
  Json object{{"gathered_bytes", sent.gathered},
              {"token_bytes", sent.tokens},
              {"tokens_per_rank", sent.tokens_of_rank},
              {"crossing_tokens_per_rank", sent.crossing}};
  if (sent.loops.open_tiles > 0) {
    object["loops"] = {{"outer", word(sent.loop)},
                       {"tiles_outside_bytes", sent.loops.tiles_outside},
                       {"slices_outside_bytes", sent.loops.slices_outside},
                       {"open_tiles_bytes", sent.loops.open_tiles}};
  }
  return object;
}

}  // namespace fpdt
