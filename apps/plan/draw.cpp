// Numbers, pictures and exports of one simulated step.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/file.h"
#include "fpdt/io/gzip.h"
#include "fpdt/report/axis.h"
#include "fpdt/report/memory_snapshot.h"
#include "fpdt/report/perfetto.h"

#include "common/command.h"
#include "common/picture.h"
#include "plan/graph.h"
#include "plan/simulated.h"
#include "plan/verbs.h"

namespace fpdt {
namespace {

struct DrawFlags {
  std::string schedule, cluster, out, what, blocks, ops, ranks;
  PictureFlags look;
  bool json = false, graph = false;
};

// Ops that files for viewers hold one by one. Pictures have their sums from all ops of a step.
constexpr std::int64_t kHeld = 1000000;
// A picture takes about 300 bytes for each op.
constexpr std::int64_t kDrawn = 50000000;
// Ops of all ranks that are simulated together, none of which is skipped.
constexpr std::int64_t kTogether = 5000000;

void write(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
  print_result(fmt::format("wrote {}\n", path));
}

// The values of a verb's flags outlive the parser that fills them and the command that reads them.
auto add_schedule(Options& options) {
  auto flags = std::make_shared<DrawFlags>();
  options.value("SCHEDULE", flags->schedule, "Schedule file").required();
  options.value("--cluster", flags->cluster,
                "Machine whose rates to use; default: the one it was planned for");
  return flags;
}

// The time of all calls of a block.
struct BlockTime {
  std::string name;
  std::int64_t calls = 0, nanoseconds = 0;
};

// Lanes run ahead, so calls overlap. A call counts from when all before it have ended: the blocks
// share the step.
std::vector<BlockTime> block_times(const Simulated& one) {
  std::vector<BlockTime> times;
  for (const Block& block : one.schedule().blocks) times.push_back({block.name, 0, 0});
  std::int64_t ended = 0;
  for (std::size_t i = 0; i < one.schedule().train.size(); ++i) {
    BlockTime& time = times[static_cast<std::size_t>(one.schedule().train[i].block)];
    const std::int64_t end = std::max(ended, one.simulation().calls[i].end);
    ++time.calls;
    time.nanoseconds += end - ended;
    ended = end;
  }
  std::erase_if(times, [](const BlockTime& time) { return time.calls == 0; });
  return times;
}

std::string simulation_text(const Simulated& one) {
  const Simulation& simulation = one.simulation();
  const Throughput now = throughput(one.problem(), one.strategy(), simulation);
  std::string text = fmt::format(
      "step        {}, {} ops\nthroughput  {} tokens/s per GPU, MFU {:.1f} % causal, {:.1f} % "
      "as published papers count, {:.1f} % executed\n\n{:<22}{:>8}{:>16}\n",
      format_nanoseconds(simulation.nanoseconds), simulation.ops,
      format_throughput(now.tokens_per_second_per_gpu), 100 * now.mfu_causal, 100 * now.mfu_full,
      100 * now.hfu, "lane", "busy", "");
  for (std::size_t lane = 0; lane < simulation.busy.size(); ++lane) {
    text += fmt::format("{:<22}{:>8}{:>16}\n", word(static_cast<LaneKind>(lane)),
                        format_percent(static_cast<double>(simulation.busy[lane]),
                                       static_cast<double>(simulation.nanoseconds)),
                        format_nanoseconds(simulation.busy[lane]));
  }
  text += fmt::format("\n{:<22}{:>8}{:>16}\n", "op kind", "ops", "time");
  for (std::size_t kind = 0; kind < simulation.kinds.size(); ++kind) {
    const KindTime& time = simulation.kinds[kind];
    if (time.ops == 0) continue;
    text += fmt::format("{:<22}{:>8}{:>16}\n", kBodyNames[kind], time.ops,
                        format_nanoseconds(time.nanoseconds));
  }
  text += fmt::format("\n{:<22}{:>8}{:>16}\n", "block", "calls", "time");
  for (const BlockTime& time : block_times(one)) {
    text += fmt::format("{:<22}{:>8}{:>16}\n", time.name, time.calls,
                        format_nanoseconds(time.nanoseconds));
  }
  return text;
}

Json simulation_json(const Simulated& one) {
  const Simulation& simulation = one.simulation();
  const Throughput now = throughput(one.problem(), one.strategy(), simulation);
  Json lanes = Json::object(), kinds = Json::object(), blocks = Json::object();
  for (std::size_t lane = 0; lane < simulation.busy.size(); ++lane) {
    lanes[std::string(word(static_cast<LaneKind>(lane)))] = simulation.busy[lane];
  }
  for (std::size_t kind = 0; kind < simulation.kinds.size(); ++kind) {
    const auto& [ops, nanoseconds] = simulation.kinds[kind];
    if (ops == 0) continue;
    kinds[std::string(kBodyNames[kind])] = {{"ops", ops}, {"nanoseconds", nanoseconds}};
  }
  for (const BlockTime& time : block_times(one)) {
    blocks[time.name] = {{"calls", time.calls}, {"nanoseconds", time.nanoseconds}};
  }
  return {{"schema", "fpdt.simulate/1"},
          {"nanoseconds", simulation.nanoseconds},
          {"ops", simulation.ops},
          {"tokens_per_second_per_gpu", now.tokens_per_second_per_gpu},
          {"mfu_causal", now.mfu_causal},
          {"mfu_full", now.mfu_full},
          {"hfu", now.hfu},
          {"busy_nanoseconds", lanes},
          {"kinds", kinds},
          {"blocks", blocks}};
}

int draw_graph(const DrawFlags& flags, bool as_dot) {
  if (!flags.cluster.empty()) throw InputError("--cluster: a graph has no times, so it needs none");
  if (flags.look.dark()) throw InputError("--theme dark: a graph is drawn on white paper");
  const DependencyGraph drawn = load_graph(flags.schedule, flags.blocks, flags.ops);
  if (as_dot) {
    write(flags.out, drawn.dot);
  } else {
    convert(drawn.dot, {"dot", "-Tsvg", "-o", flags.out}, flags.out, "graphviz");
    print_result(fmt::format("wrote {}\n", flags.out));
  }
  for (const OpRange& range : drawn.folded) {
    print_result(fmt::format("folded ops {}-{} of {}; --ops draws other ones\n", range.first + 1,
                             range.last, drawn.ops));
  }
  return 0;
}

// "0,3" as these two; "all" as every rank, or as many as can be read, from the first to the last.
std::vector<std::size_t> parse_ranks(const std::string& text, std::int64_t ranks) {
  std::set<std::size_t> chosen;
  const auto last = static_cast<std::size_t>(ranks) - 1;
  const std::size_t rows = std::min(last, kMostRanks - 1);
  for (std::size_t row = 0; text == "all" && row <= rows; ++row) chosen.insert(row * last / rows);
  const std::string_view all = text;
  for (std::size_t begin = 0, end = 0; text != "all" && begin <= all.size(); begin = end + 1) {
    end = std::min(all.find(',', begin), all.size());
    const std::optional<std::int64_t> rank = parse_tokens(all.substr(begin, end - begin));
    if (!rank || *rank >= ranks) {
      throw InputError(fmt::format("--ranks {}: expected all, or some of 0 to {}, such as 0,{}",
                                   text, ranks - 1, ranks - 1));
    }
    chosen.insert(static_cast<std::size_t>(*rank));
  }
  if (chosen.size() > kMostRanks) {
    throw InputError(fmt::format("--ranks: {} ranks are too many to read, at most {}",
                                 chosen.size(), kMostRanks));
  }
  return {chosen.begin(), chosen.end()};
}

// The ranks below the one that stands for them when it is simulated alone.
void draw_ranks(const DrawFlags& flags, const Simulated& one) {
  const Schedule& schedule = one.schedule();
  if (schedule.ranks == 1) throw InputError("--ranks: the schedule has one rank");
  TimelinePicture picture = one.picture();
  picture.rows = parse_ranks(flags.ranks, schedule.ranks);
  const std::int64_t most = kTogether / schedule.ranks;
  if (const std::int64_t ops = one.simulation().ops; ops > most) {
    throw InputError(
        fmt::format("{}: {} ops are too many to simulate {} ranks together, at most {}; use longer "
                    "chunks, or a model of fewer layers",
                    flags.schedule, ops, schedule.ranks, most));
  }
  Trace alone = *picture.run.trace;
  alone.source = "one rank";
  picture.run.trace = &alone;
  const std::vector<Trace> ranks = one.ranks_together();
  for (const Trace& rank : ranks) {
    picture.measured.push_back({picture.run.program, picture.run.calls, &rank});
  }
  picture.holds = calls_to_trace(schedule, kHeld / (std::ssize(picture.rows) + 1));
  write_picture(flags.out, picture, flags.look);
}

int draw(const DrawFlags& flags) {
  const std::string kind = std::filesystem::path(flags.out).extension();
  if (!flags.graph) require_picture("--draw", flags.out);
  if (flags.graph && kind != ".svg" && kind != ".dot") {
    throw InputError(
        fmt::format("--draw {}: expected a file that ends in .dot or .svg", flags.out));
  }
  if (flags.graph && flags.look.sized()) {
    throw InputError("--width and --height are for pictures of a step, not for a graph");
  }
  if (flags.graph && !flags.ranks.empty()) {
    throw InputError("--ranks is for pictures of a step; a graph is the same on all ranks");
  }
  if (flags.graph) return draw_graph(flags, kind == ".dot");
  if (!flags.blocks.empty() || !flags.ops.empty()) {
    throw InputError("--block and --ops choose what a graph shows: add --graph");
  }
  require_sensible(flags.look, flags.out);
  const Simulated one(flags.schedule, flags.cluster, kDrawn);
  if (one.simulation().ops > kDrawn) {
    throw InputError(fmt::format("{}: {} ops are too many to draw, at most {}; use longer chunks",
                                 flags.schedule, one.simulation().ops, kDrawn));
  }
  if (flags.ranks.empty()) {
    TimelinePicture picture = one.picture();
    picture.holds = calls_to_trace(one.schedule(), kHeld);
    write_picture(flags.out, picture, flags.look);
  } else {
    draw_ranks(flags, one);
  }
  print_result(fmt::format("wrote {}\n", flags.out));
  return 0;
}

int export_run(const DrawFlags& flags) {
  const bool perfetto = flags.what == "perfetto";
  const bool packed = flags.out.ends_with(".gz");
  if (packed && !perfetto) {
    throw InputError(fmt::format(
        "--out {}: memory_viz opens no compressed file; expected a name that ends in .pickle",
        flags.out));
  }
  const Simulated one(flags.schedule, flags.cluster, kHeld);
  const std::string text = perfetto ? perfetto_json({one.run()}) : memory_snapshot(one.run());
  write(flags.out, packed ? gzip(text) : text);
  return 0;
}

}  // namespace

Command declare_simulate(Options& options) {
  const auto flags = add_schedule(options);
  options.flag("--json", flags->json, "Print one JSON object");
  return [flags] {
    const Simulated one(flags->schedule, flags->cluster, 0);
    print_result(flags->json ? json_line(simulation_json(one)) : simulation_text(one));
    return 0;
  };
}

Command declare_draw(Options& options) {
  const auto flags = add_schedule(options);
  options
      .value("--draw,--out", flags->out,
             "File to draw to: .html (hover and zoom), .svg or .png; with --graph, .dot or .svg")
      .required();
  options.value("--ranks", flags->ranks,
                "Simulate all ranks together, each waiting for the others, and draw a row of each "
                "lane for these: all, or numbers such as 0,3");
  add_picture_flags(options, flags->look);
  options.flag("--graph", flags->graph,
               "Draw which op waits for which in a block, with Graphviz; needs no rates");
  options.value("--block", flags->blocks,
                "Block of the graph, such as forward, or blocks, such as gather,forward");
  options.value("--ops", flags->ops,
                "Ops of the graph, such as 20-60; default: all, or the first and the last");
  return [flags] { return draw(*flags); };
}

Command declare_export(Options& options) {
  const auto flags = add_schedule(options);
  options.value("--format", flags->what, "For ui.perfetto.dev or pytorch.org/memory_viz")
      .required()
      .one_of({"perfetto", "memory-viz"});
  options.value("--out", flags->out, "File to write; perfetto is compressed if it ends in .gz")
      .required();
  return [flags] { return export_run(*flags); };
}

}  // namespace fpdt
