// Runs one search for each point.
#include "plan/sweep.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/report/axis.h"

#include "common/command.h"
#include "common/picture.h"
#include "plan/verbs.h"
#include "plan/watch.h"

namespace fpdt {
namespace {

struct SweepFlags {
  QuestionFlags question;
  std::string over, values, draw;
  PictureFlags look;
};

// A swept value must not be pinned as well.
void require_free(const QuestionFlags& question, Over over) {
  const auto refuse = [&](bool given, std::string_view flag) {
    if (!given) return;
    throw InputError(
        fmt::format("--over {}: its values replace {}; leave that out", word(over), flag));
  };
  refuse(over == Over::chunk && !question.chunk.empty(), "--chunk");
  refuse(over == Over::chunk && !question.method.empty(), "--method");
  refuse(over == Over::seq_len && !question.seq_len.empty(), "--seq-len");
  refuse(over == Over::gpus && question.gpus > 0, "--gpus");
  refuse(over == Over::host_budget && !question.host_budget.empty(), "--host-budget");
  if (over != Over::seq_len && question.seq_len.empty()) {
    throw InputError(fmt::format("--over {}: --seq-len is missing, such as 2M", word(over)));
  }
}

// The bytes that a rank sends in a step, where the machines differ.
std::string sent_text(Over over, const std::string& near, const std::string& remote) {
  if (!over_machines(over)) return "";
  return fmt::format("{:>11}{:>11}", near, remote);
}

std::string row(Over over, const SweepPoint& point) {
  if (!point.outcome) {
    const Shortage& shortage = point.shortage;
    return fmt::format("{:>11}  no: {:<8} {}\n", label(over, point), word(shortage.binding),
                       need_text(point.pins, shortage.need, shortage.have));
  }
  const Outcome& one = *point.outcome;
  const Throughput& now = one.throughput[kTypicalCase];
  const Geometry shape = geometry(point.problem, one.strategy);
  return fmt::format(
      "{:>11}  {:<12}{:>9}{:>14}{:>12}{:>17}{:>11}{:>11}{}  {}\n", label(over, point),
      verdict_text(one), format_tokens(shape.chunk_rows), format_seconds(now.step_seconds),
      format_throughput(now.tokens_per_second_per_gpu), mfu_text(one),
      format_bytes(one.usage.device), format_bytes(one.usage.host_node),
      sent_text(over, format_bytes(Bytes{one.sent.node}), format_bytes(Bytes{one.sent.network})),
      word(one.binding));
}

// The table without its rows.
std::string head(const Question& question, Over over, const std::vector<SweepPoint>& points) {
  std::string text = fmt::format("{}\n{}\n\n", sweep_title(question, over), sweep_subtitle(points));
  text += fmt::format("{:>11}  {:<12}{:>9}{:>14}{:>12}{:>17}{:>11}{:>11}{}  {}\n",
                      over == Over::weak_scaling ? "gpus, seq" : word(over), "", "chunk", "step",
                      "tokens/s", "MFU", "device", "host", sent_text(over, "sent to", "sent to"),
                      "limited by");
  return text + fmt::format("{:>11}  {:<12}{:>9}{:>14}{:>12}{:>17}{:>11}{:>11}{}\n", "", "",
                            "tokens", "", "per GPU", "causal / papers", "per GPU", "per node",
                            sent_text(over, "node", "others"));
}

Json object(const Question& question, Over over, const std::vector<SweepPoint>& points) {
  Json list = Json::array();
  for (const SweepPoint& point : points) {
    list.push_back({{"value", point.value},
                    {"gpus", point.problem.ranks()},
                    {"seq_len", point.problem.seq_len},
                    {"device_budget", point.problem.device_budget.value},
                    {"host_budget", point.problem.host_budget.value}});
    list.back().update(point.outcome ? outcome_json(point.problem, *point.outcome)
                                     : Json{{"verdict", "infeasible"},
                                            {"binding", word(point.shortage.binding)},
                                            {"need_bytes", point.shortage.need.value},
                                            {"have_bytes", point.shortage.have.value}});
  }
  return {{"schema", "fpdt.sweep/1"},
          {"over", word(over)},
          {"model", question.problem.model.name},
          {"cluster", question.problem.cluster.name},
          {"points", list}};
}

void note_unused_gpus(const Question& question, Over over, const std::vector<SweepPoint>& points) {
  for (const SweepPoint& point : points) {
    if (!over_machines(over) || point.pins.strategy) return;
    Problem whole = point.problem;
    whole.cluster = with_devices(question.problem.cluster, point.value);
    note_unused(whole, point.pins, point.problem.ranks());
  }
}

int sweep(const SweepFlags& flags) {
  const Over over = parse_word<Over>(flags.over).value();
  if (!flags.draw.empty()) require_picture("--draw", flags.draw);
  require_sensible(flags.look, flags.draw);
  require_free(flags.question, over);
  const Question question = load_question(flags.question, over_machines(over));
  Watch watch;
  watch.begin("longest sequence");
  std::vector<SweepPoint> points = sweep_points(question, over, flags.values, watch.listener());
  watch.hide();
  note_unused_gpus(question, over, points);
  if (over == Over::seq_len) note_length(question, points.back().problem);
  // Opened before the work, so that a wrong path costs no time.
  if (!flags.draw.empty()) AtomicFile{flags.draw};
  const auto print = [&](const std::string& text) {
    if (flags.question.json) return;
    watch.hide();
    print_result(text);
  };
  print(head(question, over, points));
  std::int64_t begun = 0;
  SweepListener listener;
  listener.begun = [&](const SweepPoint& point) {
    watch.begin(fmt::format("{} {}", word(over), label(over, point)), ++begun,
                static_cast<std::int64_t>(points.size()));
  };
  listener.answered = [&](const SweepPoint& point) { print(row(over, point)); };
  listener.progress = watch.listener();
  if (over == Over::seq_len && flags.values.empty()) {
    answer_lengths(points, listener);
  } else {
    answer_points(points, listener);
  }
  watch.hide();
  if (!flags.draw.empty()) {
    write_picture(flags.draw, sweep_picture(question, over, points), flags.look);
  }
  if (flags.question.json) print_result(json_line(object(question, over, points)));
  const bool any = std::any_of(points.begin(), points.end(),
                               [](const SweepPoint& point) { return point.outcome.has_value(); });
  return static_cast<int>(any ? ExitCode::done : ExitCode::infeasible);
}

}  // namespace

Command declare_sweep(Options& options) {
  auto flags = std::make_shared<SweepFlags>();
  const auto over = words<Over>();
  options.value("--over", flags->over, "What to vary")
      .required()
      .one_of({over.begin(), over.end()});
  options.value("--values", flags->values,
                "Its values, such as 16K,64K,256K; default: a usual range");
  options.value("--draw,--svg", flags->draw, "Draw the curves to this .html, .svg or .png");
  add_question(options, flags->question, Length::optional);
  add_pins(options, flags->question);
  add_curve_flags(options, flags->look);
  return [flags] { return sweep(*flags); };
}

}  // namespace fpdt
