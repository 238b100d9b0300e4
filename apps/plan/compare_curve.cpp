// The field's picture: MFU over sequence lengths, a curve for each contender, which ends where it
// runs out of memory.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/report/axis.h"

#include "plan/compare.h"

namespace fpdt {
namespace {

Problem with_length(const Question& question, std::int64_t tokens) {
  Problem problem = question.problem;
  problem.seq_len = tokens;
  return problem;
}

// Which pairs of attention count, as --mfu takes it.
double mfu_of(const Throughput& throughput, const std::string& counted) {
  return counted == "full" ? throughput.mfu_full : throughput.mfu_causal;
}
double mfu_of(const ComparedPoint& point, const std::string& counted) {
  return mfu_of(point.outcome->throughput[kTypicalCase], counted);
}
std::string_view words_of(const std::string& counted) {
  return counted == "full" ? "attention counted over the full square, as published papers count"
                           : "attention counted over the causal half";
}

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

// "out of memory: device, 95.6 GiB of 80.0 GiB".
std::string end_text(const ComparedPoint& point) {
  if (!point.outcome) return "not possible at this length";
  const bool device = point.outcome->binding == Binding::device;
  const Usage& usage = point.outcome->usage;
  return fmt::format(
      "out of memory: {}, {} of {}", word(point.outcome->binding),
      format_bytes(device ? usage.device : usage.host_node),
      format_bytes(device ? point.problem.device_budget : point.problem.host_budget));
}

std::string curve_name(const Contender& contender) {
  if (contender.method == nullptr) return "fpdt-plan's answer";
  return fmt::format("{} {}", contender.method->title, contender.published ? "published" : "best");
}

CurveValue value_of(const ComparedPoint& point, const std::string& counted) {
  const Outcome& one = *point.outcome;
  const auto& [slow, typical, fast] = one.throughput;
  const double mfu = mfu_of(typical, counted);
  return {mfu, 0, 0, percent_text(mfu),
          fmt::format(" ({:.1f} to {:.1f}), {} a sequence, device {}, host {}, limited by {}",
                      100 * mfu_of(slow, counted), 100 * mfu_of(fast, counted),
                      format_seconds(one.sequence_seconds[kTypicalCase]),
                      format_bytes(one.usage.device), format_bytes(one.usage.host_node),
                      word(one.binding))};
}

}  // namespace

std::vector<std::int64_t> compared_lengths(const Question& question, const std::string& flag) {
  if (flag.empty()) return doubling_lengths(question.problem, question.pins);
  std::vector<std::int64_t> lengths;
  for (std::size_t begin = 0; begin <= flag.size();) {
    const std::size_t end = std::min(flag.find(',', begin), flag.size());
    const std::string where = fmt::format("--lengths, entry {}", lengths.size() + 1);
    lengths.push_back(parse_length(where, flag.substr(begin, end - begin)));
    const Problem problem = with_length(question, lengths.back());
    const Strategy any = with_ring(default_strategy(problem), problem.ranks());
    const std::vector<Diagnostic> findings = check(problem, any);
    if (!findings.empty()) {
      throw InputError(fmt::format("{}: {}", where, format_diagnostics(findings)));
    }
    begin = end + 1;
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

std::string curves_text(const std::vector<ComparedCurve>& curves,
                        const std::vector<std::int64_t>& lengths, const std::string& counted) {
  std::size_t width = 0;
  for (const ComparedCurve& curve : curves) width = std::max(width, curve.contender.name.size());
  std::string text = fmt::format("\nMFU over sequence lengths, {}\n", words_of(counted));
  text += fmt::format("{:<{}}", "strategy", width);
  for (const std::int64_t length : lengths) text += fmt::format("{:>12}", format_tokens(length));
  text += "\n";
  for (const ComparedCurve& curve : curves) {
    text += fmt::format("{:<{}}", curve.contender.name, width);
    for (const ComparedPoint& point : curve.points) {
      text += fmt::format("{:>12}", point.fits()    ? percent_text(mfu_of(point, counted))
                                    : point.outcome ? verdict_text(*point.outcome)
                                                    : "no");
    }
    text += "\n";
  }
  return text;
}

Json curves_json(const std::vector<ComparedCurve>& curves) {
  Json list = Json::array();
  for (const ComparedCurve& curve : curves) {
    const Contender& contender = curve.contender;
    Json points = Json::array();
    std::int64_t longest = 0;
    for (const ComparedPoint& point : curve.points) {
      points.push_back({{"seq_len", point.problem.seq_len}});
      if (point.fits()) longest = point.problem.seq_len;
      points.back().update(point.outcome ? outcome_json(point.problem, *point.outcome)
                                         : Json{{"verdict", "infeasible"}, {"binding", nullptr}});
    }
    list.push_back({{"name", contender.name},
                    {"published", contender.published},
                    {"best", contender.method != nullptr && !contender.published},
                    {"longest_tokens", longest},
                    {"points", std::move(points)}});
    if (contender.method != nullptr) list.back()["method"] = contender.method->name;
  }
  return list;
}

CurvePicture curves_picture(const Question& question, const std::vector<ComparedCurve>& curves,
                            const std::vector<std::int64_t>& lengths, const std::string& counted) {
  const Problem& problem = question.problem;
  CurvePicture picture;
  picture.title =
      fmt::format("{} on {}: MFU over sequence lengths", problem.model.name, problem.cluster.name);
  picture.subtitle =
      fmt::format("simulated at typical rates, within {} per GPU and {} of host memory per node",
                  format_bytes(problem.device_budget), format_bytes(problem.host_budget));
  picture.subtitle += "; published: as its authors run it; best: the fastest of its region";
  picture.axis = "tokens per sequence";
  picture.logarithmic = true;
  for (const std::int64_t length : lengths) {
    picture.places.push_back({static_cast<double>(length), format_tokens(length), ""});
  }
  CurvePanel panel;
  panel.title = fmt::format("Model flops utilisation (MFU), {}", words_of(counted));
  panel.unit = CurveUnit::percent;
  panel.reach = "Longest of these lengths that fits, and what is short beyond it";
  const auto all = methods();
  for (const ComparedCurve& curve : curves) {
    const Contender& contender = curve.contender;
    CurveSeries series{curve_name(contender), "", {}};
    if (contender.method != nullptr) series.family = contender.method->title;
    series.stroke = contender.method == nullptr ? CurveStroke::thick
                    : contender.published       ? CurveStroke::broken
                                                : CurveStroke::plain;
    series.color =
        static_cast<std::size_t>(std::find(all.begin(), all.end(), contender.method) - all.begin());
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      const ComparedPoint& point = curve.points[i];
      if (point.fits()) {
        series.values.push_back(value_of(point, counted));
      } else {
        series.end = CurveEnd{i, end_text(point)};
      }
    }
    panel.series.push_back(std::move(series));
  }
  const bool over = std::any_of(curves.begin(), curves.end(), [&](const ComparedCurve& curve) {
    return std::any_of(curve.points.begin(), curve.points.end(), [&](const ComparedPoint& one) {
      return one.fits() && mfu_of(one, counted) > 1;
    });
  });
  if (over) {
    picture.subtitle += "; over 100 % is possible, since half of the square is never computed";
  }
  picture.panels.push_back(std::move(panel));
  return picture;
}

}  // namespace fpdt
