// Rows of outcomes, and rungs of a ladder.
#include "plan/compare.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/io/strategy_file.h"
#include "fpdt/plan/search/ladder.h"
#include "fpdt/report/axis.h"
#include "fpdt/spec/attention_kernels.h"

#include "common/picture.h"
#include "common/share.h"
#include "plan/verbs.h"
#include "plan/watch.h"

namespace fpdt {
namespace {

struct CompareFlags {
  QuestionFlags question;
  std::vector<std::string> methods, with;
  bool ladder = false;
  std::string draw, lengths, mfu = "causal";
  PictureFlags look;
};

struct Row {
  std::string name;
  Problem problem;  // on the GPUs that it uses
  Outcome outcome;
  const Method* method = nullptr;  // whose row it is
  std::optional<Wasted> wasted{};  // of a method as its authors run it
};

double seconds_of(const Outcome& outcome) { return outcome.sequence_seconds[kTypicalCase]; }

Row row_of(const Question& question, const Contender& contender, Watch& watch) {
  const Problem problem = contender.on_its_gpus(question.problem);
  watch.begin(contender.method == nullptr ? "search" : std::string(contender.method->title));
  const Contended found = contend(problem, contender, watch.listener());
  return {contender.name, problem, found.outcome, contender.method, found.wasted};
}

std::vector<Row> rows_of(const Question& question, const std::vector<Contender>& all,
                         const std::vector<std::string>& files, Watch& watch) {
  const Problem& problem = question.problem;
  require_possible(problem, question.pins);
  for (const Contender& contender : all) {
    if (!contender.published) continue;
    const Problem its = contender.on_its_gpus(problem);
    require_sound(its, contender.method->published(its, question.pins.batch), "");
  }
  std::vector<std::pair<Problem, Strategy>> given;
  for (const std::string& file : files) {
    const std::string found = find_shared(Shelf::strategies, "--with", file);
    const Strategy strategy = load_strategy(found);
    given.emplace_back(problem, strategy);
    given.back().first.cluster = used_cluster(problem.cluster, strategy, file);
    require_sound(given.back().first, strategy, found);
  }
  std::vector<Row> rows;
  for (const Contender& contender : all) {
    if (contender.method != nullptr) rows.push_back(row_of(question, contender, watch));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    watch.begin(files[i]);
    const auto& [its, strategy] = given[i];
    rows.push_back({files[i], its, outcome(its, strategy)});
  }
  rows.push_back(row_of(question, all.back(), watch));
  watch.hide();
  // Said of the question already.
  const Row& front = rows.front();
  const std::string usual = why_own_attention(front.problem, front.outcome.strategy);
  for (const Row& row : rows) {
    const Strategy& strategy = row.outcome.strategy;
    if (row.wasted || !row.outcome.fits) continue;
    if (why_own_attention(row.problem, strategy) == usual) continue;
    note_own_attention(row.problem, strategy, row.name);
  }
  return rows;
}

// The rungs from the first row to the last, each as it is placed. If there is waste, it goes first,
// as a rung of its own.
std::vector<Row> rungs_of(const Problem& problem, const std::vector<Row>& rows, Watch& watch) {
  watch.begin("ladder");
  const std::vector<Rung> rungs = ladder(problem, rows.front().outcome.strategy,
                                         rows.back().outcome.strategy, watch.listener());
  std::vector<Row> all{rows.front()};
  for (const Rung& rung : rungs) {
    if (rung.lever.empty() && !wastes(*rows.front().wasted)) continue;
    watch.begin("timing the ladder", static_cast<std::int64_t>(all.size()),
                static_cast<std::int64_t>(rungs.size()));
    all.push_back({rung.lever.empty() ? "without the waste of its implementation" : rung.lever,
                   problem, outcome(problem, rung.strategy)});
  }
  return all;
}

std::string head(const Question& question) {
  const Problem& problem = question.problem;
  return fmt::format("{}, {} tokens on {}, within {} per GPU and {} of host memory per node\n\n",
                     problem.model.name, format_tokens(problem.seq_len), problem.cluster.name,
                     format_bytes(problem.device_budget), format_bytes(problem.host_budget));
}

std::string rows_text(const Problem& problem, const std::vector<Row>& rows) {
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.name.size() + 2);
  const bool several = problem.cluster.nodes > 1;
  const auto network = [&](const std::string& column) {
    return several ? fmt::format("{:>11}", column) : "";
  };
  std::string text = fmt::format(
      "{0:<{1}}{2:<11}{3:>13}{4:>8}{5:>16}{6:>11}{7:>11}{8:>11}{9}  {10}\n", "strategy", width, "",
      "time", "speed", "MFU", "device", "host", "sent", network("sent"), "limited by");
  text += fmt::format("{0:<{1}}{0:<11}{2:>13}{0:>8}{3:>16}{4:>11}{5:>11}{6:>11}{7}\n", "", width,
                      "per sequence", "causal / papers", "per GPU", "per node", "in node",
                      network("to nodes"));
  const double first = seconds_of(rows.front().outcome);
  for (const Row& row : rows) {
    const Outcome& one = row.outcome;
    text += fmt::format("{:<{}}{:<11}{:>13}{:>7.2f}x{:>16}{:>11}{:>11}{:>11}{}  {}\n", row.name,
                        width, verdict_text(one), format_seconds(seconds_of(one)),
                        first / seconds_of(one), mfu_text(one), format_bytes(one.usage.device),
                        format_bytes(one.usage.host_node), format_bytes(Bytes{one.sent.node}),
                        network(format_bytes(Bytes{one.sent.network})), word(one.binding));
  }
  text += "\n";
  for (const Row& row : rows) {
    text += fmt::format("{}: {}{}\n", row.name, in_words(row.problem, row.outcome.strategy),
                        row.wasted && wastes(*row.wasted) ? "; " + waste_text(*row.wasted) : "");
  }
  const Row& last = rows.back();
  if (last.outcome.experts) {
    text += fmt::format("experts, {}: {}\n", last.name, experts_text(*last.outcome.experts));
  }
  const bool all =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.outcome.fits; });
  if (!all) text += "What does not fit is timed as if it did.\n";
  const Strategy& answer = rows.back().outcome.strategy;
  if (answer.mesh.replicas * answer.micro_batches > 1) {
    text += fmt::format("A step of the answer trains {} sequences in {}.\n",
                        answer.mesh.replicas * answer.micro_batches,
                        format_seconds(rows.back().outcome.throughput[kTypicalCase].step_seconds));
  }
  return text;
}

std::string rungs_text(const std::vector<Row>& rungs) {
  constexpr const char* kColumns = "{:>13}{:>13}{:>8}{:>11}{:>11}{:>11}{:>11}{}\n";
  std::string text = fmt::format(
      "\nfrom {} as published to the answer: at each rung, the remaining lever that gains most\n",
      rungs.front().method->title);
  text +=
      fmt::format(kColumns, "time", "gained", "speed", "device", "change", "host", "change", "");
  text += fmt::format(kColumns, "per sequence", "", "", "per GPU", "", "per node", "", "  lever");
  const Outcome& first = rungs.front().outcome;
  for (std::size_t i = 0; i < rungs.size(); ++i) {
    const Outcome& now = rungs[i].outcome;
    const Outcome& before = rungs[i == 0 ? 0 : i - 1].outcome;
    const auto beside = [&](std::string difference) { return i == 0 ? std::string() : difference; };
    text += fmt::format(
        "{:>13}{:>13}{:>7.2f}x{:>11}{:>11}{:>11}{:>11}  {}{}\n", format_seconds(seconds_of(now)),
        beside(format_seconds(seconds_of(before) - seconds_of(now))),
        seconds_of(first) / seconds_of(now), format_bytes(now.usage.device),
        beside(format_change(now.usage.device, before.usage.device)),
        format_bytes(now.usage.host_node),
        beside(format_change(now.usage.host_node, before.usage.host_node)), rungs[i].name,
        now.fits ? "" : fmt::format(" (does not fit: {})", word(now.binding)));
  }
  return text;
}

Json rows_json(const std::vector<Row>& rows) {
  const double first = seconds_of(rows.front().outcome);
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"name", row.name}, {"relative_speed", first / seconds_of(row.outcome)}});
    list.back().update(outcome_json(row.problem, row.outcome));
    if (row.method != nullptr) list.back()["method"] = row.method->name;
    list.back()["published"] = row.wasted.has_value();
    list.back()["best"] = row.method != nullptr && !row.wasted;
  }
  return list;
}

Json rungs_json(const Problem& problem, const std::vector<Row>& rungs) {
  Json list = Json::array();
  for (std::size_t i = 0; i < rungs.size(); ++i) {
    const Outcome& now = rungs[i].outcome;
    const Outcome& before = rungs[i == 0 ? 0 : i - 1].outcome;
    list.push_back(
        {{"lever", i == 0 ? Json() : Json(rungs[i].name)},
         {"sequence_seconds_gained", seconds_of(before) - seconds_of(now)},
         {"device_bytes_gained", before.usage.device.value - now.usage.device.value},
         {"host_bytes_per_node_gained", before.usage.host_node.value - now.usage.host_node.value}});
    list.back().update(outcome_json(problem, now));
  }
  return list;
}

// The methods with these names; all methods if there are no names.
std::vector<const Method*> compared(const std::vector<std::string>& names) {
  std::vector<const Method*> found;
  for (const Method* method : methods()) {
    const bool named = std::find(names.begin(), names.end(), method->name) != names.end();
    if (names.empty() || named) found.push_back(method);
  }
  return found;
}

// Says which methods leave GPUs unused, and which have no row since they need more.
void note_gpus(const Problem& problem, const std::vector<const Method*>& asked,
               const std::vector<Contender>& all) {
  for (const Contender& one : all) {
    if (one.published) note_unused(problem, one.pins, one.cluster.devices(), one.method->title);
  }
  for (const Method* method : asked) {
    const bool has_row = std::any_of(all.begin(), all.end(),
                                     [&](const Contender& one) { return one.method == method; });
    if (has_row) continue;
    if (!serves(*method, problem.model)) {
      say(fmt::format("note: {} has no row: its ranks share products, and {} are not cut\n",
                      method->title, problem.model.uncut()));
      continue;
    }
    say(fmt::format("note: {} has no row: {} GPUs form no grid for it\n", method->title,
                    problem.ranks()));
  }
}

int compare(const CompareFlags& flags) {
  if (!flags.question.strategy.empty()) {
    throw InputError(fmt::format("--strategy {0}: to compare a strategy file, use --with {0}",
                                 flags.question.strategy));
  }
  if (!flags.draw.empty()) require_picture("--draw", flags.draw);
  require_sensible(flags.look, flags.draw);
  const Question question = load_question(flags.question);
  const Problem& problem = question.problem;
  const bool drawn = !flags.draw.empty() || !flags.lengths.empty();
  std::vector<std::int64_t> lengths;
  if (drawn) lengths = compared_lengths(question, flags.lengths);
  // Opened before the work, so that a wrong path costs no time.
  if (!flags.draw.empty()) AtomicFile{flags.draw};
  std::vector<Row> rows, rungs;
  std::vector<ComparedCurve> curves;
  bool answered = false, published = false, joined = false;
  {
    Watch watch;
    const std::vector<const Method*> asked = compared(flags.methods);
    const std::vector<Contender> all = contenders(problem, question.pins, asked);
    note_gpus(problem, asked, all);
    rows = rows_of(question, all, flags.with, watch);
    answered = rows.back().outcome.fits;
    published = rows.front().wasted.has_value();
    joined = rows.front().problem == rows.back().problem;
    if (flags.ladder && answered && published && joined) rungs = rungs_of(problem, rows, watch);
    if (drawn) {
      const auto begun = [&](std::int64_t tokens, std::int64_t part, std::int64_t parts) {
        watch.begin(fmt::format("{} tokens", format_tokens(tokens)), part, parts);
      };
      curves =
          compared_curves(problem, flags.lengths.empty(), lengths, all, {begun, watch.listener()});
    }
  }
  if (!flags.draw.empty()) {
    write_picture(flags.draw, curves_picture(question, curves, lengths, flags.mfu), flags.look);
  }
  if (flags.ladder && !answered) say("note: --ladder: nothing fits, so there is no ladder\n");
  if (flags.ladder && answered && !published) {
    say("note: --ladder: no published strategy is compared, so there is no ladder\n");
  }
  if (flags.ladder && answered && published && !joined) {
    say(fmt::format(
        "note: --ladder: the answer uses more GPUs than {} can, so there is no ladder\n",
        rows.front().method->title));
  }
  if (flags.question.json) {
    Json object{{"schema", "fpdt.compare/1"},
                {"model", problem.model.name},
                {"cluster", problem.cluster.name},
                {"seq_len", problem.seq_len},
                {"rows", rows_json(rows)}};
    if (!rungs.empty()) object["ladder"] = rungs_json(problem, rungs);
    if (drawn) object["curves"] = curves_json(curves);
    print_result(json_line(object));
  } else {
    print_result(head(question) + rows_text(problem, rows) +
                 (rungs.empty() ? "" : rungs_text(rungs)) +
                 (drawn ? curves_text(curves, lengths, flags.mfu) : ""));
  }
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.outcome.fits; });
  return static_cast<int>(any ? ExitCode::done : ExitCode::infeasible);
}

}  // namespace

Command declare_compare(Options& options) {
  auto flags = std::make_shared<CompareFlags>();
  add_question(options, flags->question);
  add_other_pins(options, flags->question);
  options
      .value("--method", flags->methods,
             "Compare only this method, or several such as fpdt,ring; may be repeated; default: "
             "all")
      .one_of(method_names())
      .separated();
  options.value("--with", flags->with,
                "Compare this strategy, a name or a file, as well; may be repeated");
  options.flag("--ladder", flags->ladder,
               "Show what each lever gains from the first method as published to the answer");
  options.value("--draw", flags->draw,
                "Draw MFU over sequence lengths to this .html, .svg or .png: each method as "
                "published and at its best, and the answer");
  options.value("--lengths", flags->lengths,
                "Sequence lengths of the picture, such as 128K,512K,2M; default: doubling from "
                "128K until nothing fits");
  options
      .value("--mfu", flags->mfu,
             "What MFU over lengths counts of attention: its causal half, or the full square, as "
             "published papers count")
      .shows_default()
      .one_of({"causal", "full"});
  add_curve_flags(options, flags->look);
  return [flags] { return compare(*flags); };
}

}  // namespace fpdt
