// The peak of a plan, buffer by buffer, and its levers, one by one.
#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/plan/plan.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/live.h"

#include "common/command.h"
#include "plan/answer.h"
#include "plan/figures.h"
#include "plan/question.h"
#include "plan/verbs.h"
#include "plan/watch.h"

namespace fpdt {
namespace {

struct ExplainFlags {
  QuestionFlags question;
  std::int64_t buffers = 12;
};

constexpr std::int64_t kExplained = 300000;

// One line of a peak: a buffer, or the rest.
struct Holder {
  std::string name, category, origin;
  Bytes bytes;
  std::int64_t slots = 0;
};

struct Peak {
  MemorySpace space = MemorySpace::device;
  LivePeak live;
  std::vector<Holder> holders;  // heaviest first
};

Peak peak_of(const Plan& plan, MemorySpace space) {
  const Schedule& schedule = plan.lowered.schedule.schedule();
  const Program program(schedule);
  const Live live = find_live({&program, &schedule.train, &plan.simulation.trace});
  Peak peak{space, find_peak(live, space), {}};
  for (const LiveBuffer& one : peak.live.buffers) {
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(one.buffer)];
    peak.holders.push_back(
        {buffer.name, std::string(word(part_of(buffer))), origin(live, schedule.train, one),
         one.bytes,
         one.lives.empty() ? buffer.slots : static_cast<std::int64_t>(one.lives.size())});
  }
  return peak;
}

std::string peak_text(const Peak& peak, std::int64_t most) {
  std::string text = fmt::format("\n{} at its peak, {} into the step: {}\n", word(peak.space),
                                 format_nanoseconds(peak.live.time), format_bytes(peak.live.bytes));
  text +=
      fmt::format("{:>12}  {:<28}{:<15}{:<8}{}\n", "bytes", "buffer", "category", "slots", "from");
  Bytes rest = peak.live.bytes;
  std::int64_t shown = 0;
  for (const Holder& holder : peak.holders) {
    if (shown++ == most) break;
    rest = rest - holder.bytes;
    text += fmt::format("{:>12}  {:<28}{:<15}{:<8}{}\n", format_bytes(holder.bytes), holder.name,
                        holder.category, holder.slots, holder.origin);
  }
  if (rest.value > 0) text += fmt::format("{:>12}  all others\n", format_bytes(rest));
  return text;
}

Json peak_json(const Peak& peak) {
  Json holders = Json::array();
  for (const Holder& holder : peak.holders) {
    holders.push_back({{"buffer", holder.name},
                       {"category", holder.category},
                       {"bytes", holder.bytes.value},
                       {"slots", holder.slots},
                       {"from", holder.origin}});
  }
  return {{"space", word(peak.space)},
          {"bytes", peak.live.bytes.value},
          {"seconds", static_cast<double>(peak.live.time) * 1e-9},
          {"buffers", holders}};
}

double cost_of(const Worth& one) { return cost({one.change.strategy, one.usage, one.nanoseconds}); }

// Sorts levers: those that fit come first, the fastest first. Keeps one of those that lead to the
// same strategy.
std::vector<Worth> sorted(const Problem& problem, std::vector<Worth> levers) {
  std::stable_sort(levers.begin(), levers.end(), [](const Worth& a, const Worth& b) {
    return a.fits == b.fits ? cost_of(a) < cost_of(b) : a.fits;
  });
  std::vector<Worth> kept;
  for (Worth& one : levers) {
    one.change.strategy = canonical(problem, one.change.strategy);
    const bool known = std::any_of(kept.begin(), kept.end(), [&](const Worth& other) {
      return other.change.strategy == one.change.strategy;
    });
    if (!known) kept.push_back(std::move(one));
  }
  return kept;
}

std::string lever_text(const Problem& problem, const Plan& plan, const std::vector<Worth>& levers) {
  const Usage now = usage(problem, plan.strategy);
  const double base = cost({plan.strategy, now, plan.simulation.nanoseconds});
  std::string text = fmt::format(
      "\nlevers: each at its best other value, the fastest first, then what does not fit\n"
      "(time per sequence, bytes before placement)\n"
      "{:>9} {:>12} {:>13}  {}\n",
      "time", "device", "host per node", "change");
  const std::string phase = predict(problem, plan.strategy).device_peak;
  std::string without;
  for (const Worth& one : sorted(problem, levers)) {
    const double percent = 100 * (cost_of(one) / base - 1);
    constexpr double kShown = 0.005;  // what is less is printed as 0.00
    if (std::abs(percent) < kShown && one.usage == now) {
      without += fmt::format("{}{}", without.empty() ? "" : "; ", one.change.words);
      continue;
    }
    const std::string moved = predict(problem, one.change.strategy).device_peak;
    text += fmt::format("{:>+8.2f}% {:>12} {:>13}  {}{}{}\n", percent,
                        format_change(one.usage.device, now.device),
                        format_change(one.usage.host_node, now.host_node), one.change.words,
                        moved == phase ? "" : fmt::format(", device peak in {}", moved),
                        one.fits ? "" : " (does not fit)");
  }
  return text + (without.empty() ? "" : wrapped("no effect:", without));
}

Json lever_json(const Problem& problem, const Plan& plan, const std::vector<Worth>& levers) {
  const Usage now = usage(problem, plan.strategy);
  Json list = Json::array();
  for (const Worth& one : levers) {
    list.push_back(
        {{"lever", one.lever},
         {"change", one.change.words},
         {"fits", one.fits},
         {"step_seconds", static_cast<double>(one.nanoseconds) * 1e-9},
         {"sequence_seconds", cost({one.change.strategy, one.usage, one.nanoseconds}) * 1e-9},
         {"device_bytes", one.usage.device.value - now.device.value},
         {"host_bytes_per_node", one.usage.host_node.value - now.host_node.value},
         {"device_peak", predict(problem, one.change.strategy).device_peak}});
  }
  return list;
}

int explain(const ExplainFlags& flags) {
  const Question question = load_question(flags.question);
  const Problem& problem = question.problem;
  Watch watch;
  watch.begin("search");
  const SearchResult found = search(problem, question.pins, {.progress = watch.listener()});
  if (!found.best) {
    throw InfeasibleError(
        fmt::format("{} memory: {}; `fpdt-plan search` names the nearest that fits",
                    word(found.shortage->binding),
                    need_text(question.pins, found.shortage->need, found.shortage->have)));
  }
  watch.begin("proving and timing the plan");
  const Plan plan = make_plan(problem, found.best->strategy, "", kExplained);
  watch.begin("what each lever changes");
  const std::vector<Worth> levers = worth(problem, plan.strategy, watch.listener());
  const Peak device = peak_of(plan, MemorySpace::device);
  const Peak host = peak_of(plan, MemorySpace::host_pinned);
  watch.hide();
  if (flags.question.json) {
    const std::int64_t nanoseconds = plan.simulation.nanoseconds;
    Json object{{"schema", "fpdt.explain/1"},
                {"strategy", in_words(problem, plan.strategy)},
                {"step_seconds", static_cast<double>(nanoseconds) * 1e-9},
                {"sequence_seconds", cost({plan.strategy, plan.usage, nanoseconds}) * 1e-9},
                {"device_phase", predict(problem, plan.strategy).device_peak},
                {"peaks", {peak_json(device), peak_json(host)}}};
    object.update(host_json(problem, plan.usage));
    object["levers"] = lever_json(problem, plan, levers);
    print_result(json_line(object));
    return 0;
  }
  std::string text = fmt::format(
      "{}, {} tokens on {}\n{}\nstep {}, device peak in {}\n", problem.model.name,
      format_tokens(problem.seq_len), problem.cluster.name, in_words(problem, plan.strategy),
      format_nanoseconds(plan.simulation.nanoseconds), predict(problem, plan.strategy).device_peak);
  text += fmt::format("host {} per node\n     {}\n", format_bytes(plan.usage.host_node),
                      checkpoint_text(plan.usage));
  text += peak_text(device, flags.buffers) + peak_text(host, flags.buffers);
  print_result(text + lever_text(problem, plan, levers));
  return 0;
}

}  // namespace

Command declare_explain(Options& options) {
  auto flags = std::make_shared<ExplainFlags>();
  add_question(options, flags->question);
  add_pins(options, flags->question);
  options.value("--buffers", flags->buffers, "Buffers to list at each peak")
      .integer(1, 1000)
      .shows_default();
  return [flags] { return explain(*flags); };
}

}  // namespace fpdt
