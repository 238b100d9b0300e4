// The peak of a plan, buffer by buffer, and its levers, one by one.
#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/plan/plan.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/live.h"

#include "common/command.h"
#include "plan/answer.h"
#include "plan/figures.h"
#include "plan/question.h"
#include "plan/residency.h"
#include "plan/verbs.h"
#include "plan/watch.h"

namespace fpdt {
namespace {

struct ExplainFlags {
  QuestionFlags question;
  std::int64_t buffers = 12;
  std::string draw;
  PictureFlags look;
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
      fmt::format("{:>12}  {:<27} {:<15}{:<8}{}\n", "bytes", "buffer", "category", "slots", "from");
  Bytes rest = peak.live.bytes;
  std::int64_t shown = 0;
  for (const Holder& holder : peak.holders) {
    if (shown++ == most) break;
    rest = rest - holder.bytes;
    text += fmt::format("{:>12}  {:<27} {:<15}{:<8}{}\n", format_bytes(holder.bytes), holder.name,
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

// What a lever changes, beside the plan. Text and JSON show these.
struct Effect {
  Worth lever;
  double seconds = 0;  // per sequence
  double percent = 0;  // of time
  Usage before;
  std::string phase;   // of the device's peak
  bool moved = false;  // the peak is in another phase
  bool again = false;  // another lever leads to the same strategy
};

// Those that fit come first, the fastest first.
std::vector<Effect> effects_of(const Problem& problem, const Plan& plan,
                               const std::vector<Worth>& levers) {
  const Usage now = usage(problem, plan.strategy);
  const double base = cost({plan.strategy, now, plan.simulation.nanoseconds});
  const std::string phase = predict(problem, plan.strategy).device_peak;
  std::vector<Effect> effects;
  for (const Worth& one : levers) {
    const double time = cost({one.change.strategy, one.usage, one.nanoseconds});
    std::string its = predict(problem, one.change.strategy).device_peak;
    const bool moved = its != phase;
    effects.push_back({one, time * 1e-9, 100 * (time / base - 1), now, std::move(its), moved});
    Strategy& strategy = effects.back().lever.change.strategy;
    strategy = canonical(problem, strategy);
  }
  std::stable_sort(effects.begin(), effects.end(), [](const Effect& a, const Effect& b) {
    return a.lever.fits == b.lever.fits ? a.seconds < b.seconds : a.lever.fits;
  });
  for (auto one = effects.begin(); one != effects.end(); ++one) {
    one->again = std::any_of(effects.begin(), one, [&](const Effect& other) {
      return other.lever.change.strategy == one->lever.change.strategy;
    });
  }
  return effects;
}

std::string lever_text(const std::vector<Effect>& effects) {
  std::string text = fmt::format(
      "\nlevers: each at its best other value, the fastest first, then what does not fit\n"
      "(time per sequence, bytes before placement)\n"
      "{:>9} {:>12} {:>13}  {}\n",
      "time", "device", "host per node", "change");
  std::string without;
  for (const Effect& one : effects) {
    if (one.again) continue;
    const auto& [name, change, usage, fits, nanoseconds] = one.lever;
    constexpr double kShown = 0.005;  // what is less is printed as 0.00
    if (std::abs(one.percent) < kShown && usage == one.before) {
      without += fmt::format("{}{}", without.empty() ? "" : "; ", change.words);
      continue;
    }
    text += fmt::format("{:>+8.2f}% {:>12} {:>13}  {}{}{}\n", one.percent,
                        format_change(usage.device, one.before.device),
                        format_change(usage.host_node, one.before.host_node), change.words,
                        one.moved ? fmt::format(", device peak in {}", one.phase) : "",
                        fits ? "" : " (does not fit)");
  }
  return text + (without.empty() ? "" : wrapped("no effect:", without));
}

Json lever_json(const std::vector<Effect>& effects) {
  Json list = Json::array();
  for (const Effect& one : effects) {
    const auto& [name, change, usage, fits, nanoseconds] = one.lever;
    list.push_back({{"lever", name},
                    {"change", change.words},
                    {"fits", fits},
                    {"step_seconds", static_cast<double>(nanoseconds) * 1e-9},
                    {"sequence_seconds", one.seconds},
                    {"device_bytes", usage.device.value - one.before.device.value},
                    {"host_bytes_per_node", usage.host_node.value - one.before.host_node.value},
                    {"device_peak", one.phase}});
  }
  return list;
}

int explain(const ExplainFlags& flags) {
  if (!flags.draw.empty()) require_still("--draw", flags.draw);
  require_sensible(flags.look, flags.draw);
  const Question question = load_question(flags.question);
  if (!flags.draw.empty()) AtomicFile{flags.draw};  // fails before the search does
  const Problem& problem = question.problem;
  Watch watch;
  watch.begin("search");
  const SearchResult found =
      search(problem, question.pins, {.front = false, .progress = watch.listener()});
  if (!found.best) {
    throw InfeasibleError(
        fmt::format("{} memory: {}; `fpdt-plan search` names the nearest that fits",
                    word(found.shortage->binding),
                    need_text(question.pins, found.shortage->need, found.shortage->have)));
  }
  watch.begin("proving and timing the plan");
  const Plan plan = make_plan(problem, found.best->strategy, "", kExplained);
  watch.begin("what each lever changes");
  const std::vector<Effect> effects =
      effects_of(problem, plan, worth(problem, plan.strategy, watch.listener()));
  const Peak device = peak_of(plan, MemorySpace::device);
  const Peak host = peak_of(plan, MemorySpace::host_pinned);
  watch.hide();
  if (!flags.draw.empty()) draw_residency(flags.draw, problem, plan, flags.look);
  if (flags.question.json) {
    const std::int64_t nanoseconds = plan.simulation.nanoseconds;
    Json object{{"schema", "fpdt.explain/1"},
                {"strategy", in_words(problem, plan.strategy)},
                {"step_seconds", static_cast<double>(nanoseconds) * 1e-9},
                {"sequence_seconds", cost({plan.strategy, plan.usage, nanoseconds}) * 1e-9},
                {"device_phase", predict(problem, plan.strategy).device_peak},
                {"peaks", {peak_json(device), peak_json(host)}}};
    object.update(host_json(problem, plan.usage));
    object["residency"] = residency_json(problem, plan.strategy);
    object["levers"] = lever_json(effects);
    print_result(json_line(object));
    return 0;
  }
  std::string text = fmt::format(
      "{}, {} tokens on {}\n{}\nstep {}, device peak in {}\n", problem.model.name,
      format_tokens(problem.seq_len), problem.cluster.name, in_words(problem, plan.strategy),
      format_nanoseconds(plan.simulation.nanoseconds), predict(problem, plan.strategy).device_peak);
  text += fmt::format("host {} per node\n     {}\n", format_bytes(plan.usage.host_node),
                      checkpoint_text(plan.usage));
  text += residency_text(problem, plan.strategy);
  text += peak_text(device, flags.buffers) + peak_text(host, flags.buffers);
  print_result(text + lever_text(effects));
  return 0;
}

}  // namespace

Command declare_explain(Options& options) {
  auto flags = std::make_shared<ExplainFlags>();
  add_question(options, flags->question);
  add_pins(options, flags->question);
  options.value("--draw", flags->draw,
                "Draw what becomes of layer inputs and attention outputs: .svg or .png");
  add_look_flags(options, flags->look);
  options.value("--buffers", flags->buffers, "Buffers to list at each peak")
      .integer(1, 1000)
      .shows_default();
  return [flags] { return explain(*flags); };
}

}  // namespace fpdt
