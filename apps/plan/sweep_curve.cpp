// The curves of a sweep: from points to panels.
#include <algorithm>

#include <fmt/format.h>

#include "fpdt/report/curve_svg.h"

#include "plan/sweep.h"

namespace fpdt {
namespace {

// The words for the swept value, in the title and below the axis.
struct AxisWords {
  std::string_view title, axis;
};
AxisWords axis_of(Over over) {
  switch (over) {
    case Over::chunk:
      return {"chunk lengths", "tokens per chunk, over all ranks"};
    case Over::seq_len:
      return {"sequence lengths", "tokens per sequence"};
    case Over::gpus:
      return {"machine sizes", "GPUs"};
    case Over::weak_scaling:
      return {"machine sizes", "GPUs, tokens per sequence"};
    case Over::host_budget:
      return {"host memory", "host memory per node"};
  }
  return {};
}

// One value a point; none where nothing fits.
template <class ValueOf>
CurveSeries series(const std::vector<SweepPoint>& points, std::string name, std::string note,
                   ValueOf value_of) {
  CurveSeries one{std::move(name), std::move(note), {}};
  for (const SweepPoint& point : points) {
    one.values.push_back(point.outcome ? std::optional<CurveValue>(value_of(point, *point.outcome))
                                       : std::nullopt);
  }
  return one;
}

CurvePanel utilisation(const std::vector<SweepPoint>& points) {
  const auto of = [](double Throughput::*field) {
    return [field](const SweepPoint&, const Outcome& one) {
      return CurveValue{one.throughput[kTypicalCase].*field,
                        one.throughput.front().*field,
                        one.throughput.back().*field,
                        {}};
    };
  };
  CurvePanel panel{"Model flops utilisation (MFU)", CurveUnit::percent, false, {}, {}};
  panel.series.push_back(series(points, "causal", "attention counted over the causal half",
                                of(&Throughput::mfu_causal)));
  panel.series.push_back(
      series(points, "full square", "as published papers count", of(&Throughput::mfu_full)));
  return panel;
}

CurvePanel memory(const std::vector<SweepPoint>& points, Over over) {
  const auto share = [](Bytes bytes, Bytes budget) {
    return CurveValue{static_cast<double>(bytes.value) /
                          static_cast<double>(std::max<std::int64_t>(budget.value, 1)),
                      0, 0, format_bytes(bytes)};
  };
  const Problem& problem = points.front().problem;
  CurvePanel panel{"Memory, as a share of its budget", CurveUnit::percent, false, {}, {}};
  panel.series.push_back(series(
      points, "host",
      over == Over::host_budget ? "per node, of its budget"
                                : fmt::format("per node, of {}", format_bytes(problem.host_budget)),
      [&](const SweepPoint& point, const Outcome& one) {
        return share(one.usage.host_node, point.problem.host_budget);
      }));
  panel.series.push_back(series(points, "device",
                                fmt::format("per GPU, of {}", format_bytes(problem.device_budget)),
                                [&](const SweepPoint& point, const Outcome& one) {
                                  return share(one.usage.device, point.problem.device_budget);
                                }));
  panel.limit = CurveLimit{1, "budget"};
  return panel;
}

// Where experts come to the tokens, and what the other way would send.
CurvePanel sent_for_experts(const std::vector<SweepPoint>& points) {
  const auto of = [](std::int64_t ExpertsTraffic::*field) {
    return [field](const SweepPoint&, const Outcome& one) {
      const auto bytes = one.experts ? *one.experts.*field : std::int64_t{0};
      return CurveValue{static_cast<double>(bytes), 0, 0, {}};
    };
  };
  CurvePanel panel{"Sent by a rank in a step", CurveUnit::bytes, true, {}, {}};
  panel.series.push_back(
      series(points, "experts", "gathered, as the plan does", of(&ExpertsTraffic::gathered)));
  panel.series.push_back(series(points, "tokens", "if they went to experts on their ranks",
                                of(&ExpertsTraffic::tokens)));
  return panel;
}

CurvePanel times(const std::vector<SweepPoint>& points) {
  CurvePanel panel{"Time per sequence", CurveUnit::seconds, false, {}, {}};
  double least = 0;
  double most = 0;
  panel.series.push_back(series(points, "", "", [&](const SweepPoint&, const Outcome& one) {
    const double seconds = one.sequence_seconds[kTypicalCase];
    least = least == 0 ? seconds : std::min(least, seconds);
    most = std::max(most, seconds);
    return CurveValue{seconds, one.sequence_seconds.back(), one.sequence_seconds.front(), {}};
  }));
  constexpr double kWide = 20;  // over that many times, small ones would lie on the axis
  panel.logarithmic = most > kWide * least;
  return panel;
}

}  // namespace

std::string sweep_title(const Question& question, Over over) {
  const Problem& problem = question.problem;
  const std::string tokens = format_tokens(problem.seq_len);
  if (over == Over::weak_scaling) {
    return fmt::format("{}, weak scaling from {} tokens on {} GPUs, machines like {}",
                       problem.model.name, tokens, problem.ranks(), problem.cluster.name);
  }
  std::string title = problem.model.name;
  if (over != Over::seq_len) title += fmt::format(", {} tokens", tokens);
  return fmt::format("{} on {}{}, over {}", title, over == Over::gpus ? "machines like " : "",
                     problem.cluster.name, axis_of(over).title);
}

std::string sweep_subtitle(const std::vector<SweepPoint>& points) {
  const SweepPoint& first = points.front();
  const bool host_differs = first.problem.host_budget != points.back().problem.host_budget;
  return fmt::format(
      "each point is {} within {} per GPU{}",
      first.pins.strategy ? "the given strategy," : "the fastest strategy of its own search",
      format_bytes(first.problem.device_budget),
      host_differs ? ""
                   : fmt::format(" and {} of host memory per node",
                                 format_bytes(first.problem.host_budget)));
}

CurvePicture sweep_picture(const Question& question, Over over,
                           const std::vector<SweepPoint>& points) {
  CurvePicture picture;
  picture.title = sweep_title(question, over);
  picture.subtitle = sweep_subtitle(points);
  picture.axis = axis_of(over).axis;
  picture.range = "slow to fast rates of the machine";
  picture.logarithmic = true;
  const SweepPoint* best = nullptr;
  for (const SweepPoint& point : points) {
    picture.places.push_back(
        {static_cast<double>(point.value), label(over, point),
         point.outcome ? "" : fmt::format("does not fit: {}", word(point.shortage.binding))});
    if (!point.outcome) continue;
    // The rates are not exact enough for a smaller gain to justify a longer chunk.
    constexpr double kGain = 0.999;
    if (best == nullptr || point.outcome->sequence_seconds[kTypicalCase] <
                               kGain * best->outcome->sequence_seconds[kTypicalCase]) {
      best = &point;
    }
  }
  // Elsewhere the fastest is the smallest question or the largest machine.
  if (over == Over::chunk && best != nullptr) {
    picture.mark = static_cast<std::size_t>(best - points.data());
    picture.mark_name = "fastest";
  }
  picture.panels = {utilisation(points), memory(points, over), times(points)};
  const bool all_gather = std::ranges::all_of(points, [](const SweepPoint& point) {
    return !point.outcome || (point.outcome->experts && point.outcome->experts->gathered > 0);
  });
  if (best != nullptr && all_gather) picture.panels.push_back(sent_for_experts(points));
  return picture;
}

}  // namespace fpdt
