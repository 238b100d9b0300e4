// fpdt-plan sweep and compare: every point equals the search for that value, errors name wrong
// values, and points that do not fit are marked.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace fpdt::test {
namespace {

using nlohmann::json;

constexpr std::string_view kSweepQuestion = "--model model.yaml --cluster timed.yaml";

class Sweep : public CommandLine {
 protected:
  [[nodiscard]] Outcome sweep(std::string_view more) const {
    return plan(fmt::format("sweep {} {}", kSweepQuestion, more));
  }
  [[nodiscard]] json points(std::string_view more) const {
    const Outcome result = sweep(fmt::format("{} --json", more));
    EXPECT_EQ(result.code, 0) << result.err;
    const json object = json::parse(result.out);
    EXPECT_EQ(object.at("schema"), "fpdt.sweep/1");
    return object.at("points");
  }
};

using Compare = Sweep;

// A search with the value as its flag gives the same numbers.
TEST_F(Sweep, EveryPointIsASearch) {
  struct Case {
    std::string_view over, values, flag, rest;
  };
  for (const Case& one :
       {Case{"chunk", "64,32", "--chunk", "--seq-len 256"},
        Case{"seq-len", "512,128", "--seq-len", ""}, Case{"gpus", "1,4", "--gpus", "--seq-len 256"},
        Case{"host-budget", "64MiB,1GiB", "--host-budget", "--seq-len 256"}}) {
    const json all =
        points(fmt::format("--over {} --values {} {}", one.over, one.values, one.rest));
    ASSERT_EQ(all.size(), 2U) << one.over;
    EXPECT_LT(all[0].at("value"), all[1].at("value"));
    for (const json& point : all) {
      const std::string value = std::to_string(point.at("value").get<std::int64_t>()) +
                                (one.over == "host-budget" ? "B" : "");
      const Outcome found =
          plan(fmt::format("search {} {} {} {} --json", kSweepQuestion, one.flag, value, one.rest));
      ASSERT_EQ(found.code, 0) << found.err;
      const json answer = json::parse(found.out);
      const json& prediction = answer.at("prediction");
      EXPECT_EQ(point.at("verdict"), "fits");
      EXPECT_EQ(point.at("settings"), answer.at("strategy").at("settings"));
      for (const char* key : {"step_seconds", "step_seconds_slow_fast", "mfu_causal", "mfu_full",
                              "tokens_per_second_per_gpu", "device_peak_bytes",
                              "host_peak_bytes_per_node", "outside_arena_bytes"}) {
        EXPECT_EQ(point.at(key), prediction.at(key)) << one.over << " " << key;
      }
    }
  }
}

// The sequence grows with the machine, each point a search of its own.
TEST_F(Sweep, WeakScalingGrowsTheSequence) {
  const std::string question = "--over weak-scaling --values 2,4,8 --seq-len 64 --gpus 2";
  const json all = points(question);
  ASSERT_EQ(all.size(), 3U);
  for (const json& point : all) {
    const std::int64_t gpus = point.at("gpus");
    EXPECT_EQ(point.at("value"), gpus);
    EXPECT_EQ(point.at("seq_len"), 32 * gpus);
  }
  EXPECT_EQ(all[0].at("sent_bytes_per_rank").at("network"), 0);
  EXPECT_GT(all[2].at("sent_bytes_per_rank").at("network"), 0);
  const Outcome text = sweep(question + " --draw c.svg");
  EXPECT_TRUE(says(text.out, "weak scaling from 64 tokens on 2 GPUs")) << text.err;
  EXPECT_TRUE(says(text.out, "\n     8, 256  fits")) << text.out;
  EXPECT_TRUE(says(contents("c.svg"), "8, 256"));
  const Outcome odd = sweep("--over weak-scaling --values 4 --seq-len 65 --gpus 2");
  EXPECT_EQ(odd.code, 0) << "130 tokens";
  const Outcome refused = sweep("--over weak-scaling --values 1 --seq-len 65 --gpus 2");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(
      says(refused.err, "--values, entry 1 (1): 65 tokens on 2 devices are no whole number"))
      << refused.err;
}

// Four heads on six GPUs use four, as a search does.
TEST_F(Sweep, SaysWhichGpusStayUnused) {
  const Outcome result = sweep("--over gpus --seq-len 64 --method ulysses --values 4,6 --json");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "note: 2 of 6 GPUs stay unused")) << result.err;
  const json all = json::parse(result.out).at("points");
  EXPECT_EQ(all[1].at("value"), 6);
  EXPECT_EQ(all[1].at("gpus"), 4);
  EXPECT_EQ(all[1].at("settings"), all[0].at("settings"));
  // Nodes of three: no usual number divides.
  ASSERT_EQ(shell("sed 's/^devices_per_node: .*/devices_per_node: 3/' timed.yaml >three.yaml").code,
            0);
  const Outcome odd = plan(
      "sweep --model model.yaml --cluster three.yaml --over gpus --seq-len 64 --method ulysses");
  EXPECT_EQ(odd.code, 0) << odd.err;
  EXPECT_TRUE(says(odd.err, "1 of 3 GPUs stay unused")) << odd.err;
}

TEST_F(Sweep, KnowsTheUsualValues) {
  const json chunks = points("--over chunk --seq-len 1K");
  ASSERT_GT(chunks.size(), 3U);
  EXPECT_EQ(chunks.back().at("method"), "ulysses");
  EXPECT_EQ(chunks.back().at("value"), 1024);
  // Each of two hops repeats all tiles, so chunks are fewer than the 64 of one rank.
  write("ring.yaml", "mesh: {ring: 2}\nkeys: ring\nstorage: f32\ntiles: {chunk_tokens: 256}\n");
  const json hops = points("--over chunk --seq-len 4K --strategy ring.yaml");
  ASSERT_GT(hops.size(), 2U);
  EXPECT_EQ(hops.front().at("value"), 128);
  const json devices = points("--over gpus --seq-len 64 --batch 4");  // four heads
  ASSERT_EQ(devices.size(), 4U);
  EXPECT_EQ(devices.front().at("gpus"), 2);
  EXPECT_EQ(devices.back().at("gpus"), 16);
  const json budgets = points("--over host-budget --seq-len 64");
  ASSERT_EQ(budgets.size(), 7U);
  EXPECT_EQ(budgets.front().at("host_budget"), 1 << 28);
  EXPECT_EQ(budgets.back().at("host_budget"), std::int64_t{1} << 32);
}

// From an eighth of the longest to the first power of two that does not fit, which is named.
TEST_F(Sweep, LengthsEndBehindTheLongest) {
  const json lengths = points("--over seq-len --host-budget 400KiB --device-budget 400KiB");
  ASSERT_GT(lengths.size(), 4U);
  EXPECT_EQ(lengths.back().at("verdict"), "infeasible");
  EXPECT_EQ(lengths.back().at("binding"), "host");
  EXPECT_GT(lengths.back().at("need_bytes"), lengths.back().at("have_bytes"));
  for (std::size_t i = 0; i + 1 < lengths.size(); ++i) {
    EXPECT_EQ(lengths[i].at("verdict"), "fits") << lengths[i].at("value");
  }
}

TEST_F(Sweep, DrawsCurvesAndTables) {
  const std::string question =
      "--over host-budget --seq-len 1K --device-budget 1MiB --values 8KiB,256KiB,1GiB ";
  const Outcome result = sweep(question + "--draw c.svg");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");  // no progress where nobody watches
  EXPECT_TRUE(says(result.out, "over host memory"));
  EXPECT_TRUE(says(result.out, "no: host"));
  const std::string svg = contents("c.svg");
  for (const char* part : {"Model flops utilisation", "Memory, as a share of its budget",
                           "Time per sequence", "does not fit: host", "slow to fast"}) {
    EXPECT_TRUE(says(svg, part));
  }
  // The name says the kind of file; --svg is the name of before.
  ASSERT_EQ(sweep(question + "--svg c.html --theme dark").code, 0);
  const std::string html = contents("c.html");
  EXPECT_TRUE(says(html, "<table>"));
  EXPECT_LT(html.find("<th>causal"), html.find("<th>full square"));
  const Outcome refused = sweep(question + "--draw c.pdf");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused.err, "ends in .html, .svg or .png, such as c.svg")) << refused.err;
  EXPECT_FALSE(exists("c.pdf"));
}

// Whoever reads a row has it while later points, which take seconds, are still to come.
TEST_F(Sweep, PrintsEachRowOnceItIsKnown) {
  const Outcome result = shell(
      "mkfifo table; $PLAN sweep --model llama3-8b --cluster a100-80g-x4 --over seq-len "
      "--values 64K,96K,128K,256K,512K >table & "
      "exec 3<table; for i in 1 2 3 4 5 6; do read -r line <&3; echo \"$line\"; done; "
      "kill -KILL $!; echo killed; cat <&3");
  EXPECT_TRUE(says(result.out, "\n64K  fits")) << result.err;
  EXPECT_FALSE(says(result.out, "512K"));
}

// As for a search of that length: which kernels compute, and what weights have not seen.
TEST_F(Sweep, NotesWhatTheLongestMeans) {
  const Outcome found = plan(
      "sweep --over seq-len --values 2K,4K --model gemma3-1b --cluster h100-80g-x1 --method fpdt");
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(says(found.err, "note: attention tiles that a window cuts")) << found.err;
  EXPECT_FALSE(says(found.out, "e+")) << "throughput as search prints it: " << found.out;
}

TEST_F(Sweep, TimesAStrategyThatIsGiven) {
  write("s.yaml", "storage: f32\ntiles: {chunk_tokens: 64}\ncopies: {prefetch_depth: 2}\n");
  const json chunks = points("--over chunk --seq-len 256 --strategy s.yaml --values 32,128");
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].at("settings").at("tiles").at("chunk_tokens"), 32);
  EXPECT_EQ(chunks[1].at("settings").at("tiles").at("chunk_tokens"), 128);
  EXPECT_EQ(chunks[1].at("settings").at("copies").at("prefetch_depth"), 2);
}

TEST_F(Sweep, NamesTheEntryThatIsWrong) {
  struct Case {
    std::string_view arguments, message;
  };
  for (const Case& one :
       {Case{"--over chunk --seq-len 256 --values 32,x", "--values, entry 2: expected 1 to 1G"},
        Case{"--over chunk --seq-len 256 --values 32,,64", "--values, entry 2: expected"},
        Case{"--over chunk --seq-len 256 --values 32,33", "--values, entry 2 (33): "},
        Case{"--over chunk --seq-len 256 --values 32,33", "nearest is 48"},
        Case{"--over gpus --seq-len 256 --values 2,3", "--values, entry 2 (3): "},
        Case{"--over gpus --seq-len 256 --values 2,-1", "entry 2: expected 1 to 1048576 GPUs"},
        Case{"--over host-budget --seq-len 256 --values 12", "entry 1: expected a size such as"},
        Case{"--over chunk", "--seq-len is missing"},
        Case{"--over chunk --seq-len 256 --chunk 32", "leave that out"},
        Case{"--over seq-len --seq-len 256", "leave that out"},
        Case{"--over gpus --seq-len 256 --gpus 2", "leave that out"},
        Case{"--over host-budget --seq-len 64 --host-budget 1GiB", "leave that out"},
        Case{"--over chunk --seq-len 256 --values ''", "expected a value"},
        Case{"--over chunks --seq-len 256", "chunk"}}) {
    const Outcome result = sweep(one.arguments);
    EXPECT_EQ(result.code, 2) << one.arguments;
    EXPECT_TRUE(says(result.err + result.out, one.message)) << one.arguments;
  }
}

// The file is opened before the work. A result that cannot be written is an error as well.
TEST_F(Sweep, AWrongPathIsKnownAtOnce) {
  EXPECT_EQ(sweep("--over chunk --seq-len 256 --svg nowhere/c.svg").code, 7);
  EXPECT_EQ(sweep("--over chunk --seq-len 256 --svg c.svg >/dev/full").code, 7);
}

TEST_F(Sweep, NothingFitsIsItsOwnExit) {
  const Outcome result = sweep("--over chunk --seq-len 256 --device-budget 1KiB --values 32,64");
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(says(result.out, "no: device"));
}

TEST_F(Compare, SetsStrategiesBesideEachOther) {
  write("s.yaml", "storage: f32\ntiles: {chunk_tokens: 64}\n");
  const std::string compare = fmt::format(
      "compare {} --seq-len 256 --method fpdt --with s.yaml --with strategy.yaml", kSweepQuestion);
  const Outcome result = plan(compare + " --ladder --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const json object = json::parse(result.out);
  EXPECT_EQ(object.at("schema"), "fpdt.compare/1");
  const json& rows = object.at("rows");
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].at("relative_speed"), 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("published"), i == 0) << i;
    EXPECT_EQ(rows[i].at("best"), i == 1) << i;
  }
  EXPECT_EQ(rows[0].at("method"), "fpdt");
  EXPECT_EQ(rows[2].at("chunk_tokens"), 64);
  const double published = rows[0].at("sequence_seconds");
  const double answer = rows[4].at("sequence_seconds");
  EXPECT_DOUBLE_EQ(rows[4].at("relative_speed"), published / answer);
  for (const json& row : rows) EXPECT_GE(row.at("sequence_seconds"), 0.99 * answer);
  // The ladder leads from the first row to the last, and its gains add up.
  const json& rungs = object.at("ladder");
  ASSERT_GT(rungs.size(), 2U);
  EXPECT_EQ(rungs.front().at("settings"), rows[0].at("settings"));
  EXPECT_EQ(rungs.back().at("settings"), rows[4].at("settings"));
  EXPECT_EQ(rungs[1].at("lever"), "without the waste of its implementation");
  EXPECT_EQ(rungs[1].at("settings"), rows[0].at("settings"));
  EXPECT_LT(rungs[1].at("device_peak_bytes"), rows[0].at("device_peak_bytes"));
  double gained = 0;
  for (const json& rung : rungs) gained += rung.at("sequence_seconds_gained").get<double>();
  EXPECT_NEAR(gained, published - answer, 1e-12 * published);
  const Outcome text = plan(compare + " --ladder");
  EXPECT_TRUE(says(text.out, "\nFPDT (published) "));
  EXPECT_TRUE(says(text.out, "\nsearched "));
  EXPECT_TRUE(says(text.out, "its implementation wastes "));
  EXPECT_TRUE(says(text.out, "at each rung, the remaining lever that gains most"));
  EXPECT_EQ(text.out, plan(compare + " --ladder").out);
}

// Some methods have the rows, notes and curves that they have among all of them. The answer is that
// of all methods.
TEST_F(Compare, HasTheMethodsThatAreAsked) {
  ASSERT_EQ(shell("sed 's/devices_per_node: 2/devices_per_node: 3/' timed.yaml >three.yaml").code,
            0);
  const std::string compare =
      "compare --model model.yaml --cluster three.yaml --seq-len 512 --json --ladder";
  const Outcome all = plan(compare);
  const Outcome some = plan(compare + " --lengths 512 --method zigzag,lss --method zigzag");
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_FALSE(says(some.err, "note: FPDT"));
  const json rows = json::parse(all.out).at("rows");
  const json object = json::parse(some.out);
  EXPECT_EQ(object.at("curves").size(), 5U);
  ASSERT_EQ(object.at("rows").size(), 5U);
  for (json row : object.at("rows")) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const json& one) {
      return one.at("name") == row.at("name");
    });
    ASSERT_NE(same, rows.end());
    row.at("relative_speed") = same->at("relative_speed");  // to the first row
    EXPECT_EQ(row, *same);
  }
  // LSS comes first, so that the ladder begins there.
  const json& rungs = object.at("ladder");
  EXPECT_EQ(rungs.front().at("settings"), object.at("rows")[0].at("settings"));
  EXPECT_EQ(rungs.back().at("settings"), rows.back().at("settings"));
  // Nothing says that the authors' code of ring attention wastes anything.
  const Outcome ring =
      plan("compare --model model.yaml --cluster three.yaml --seq-len 512 --ladder --method ring");
  EXPECT_TRUE(says(ring.out, "\nfrom Ring attention as published to the answer"));
  EXPECT_FALSE(says(ring.out, "waste"));
  const Outcome none =
      plan(fmt::format("compare {} --seq-len 512 --ladder --method usp", kSweepQuestion));
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_TRUE(says(none.err, "no published strategy is compared")) << none.err;
  const Outcome wrong = plan(compare + " --method lss,rign");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.err, "found \"rign\"; did you mean ring?")) << wrong.err;
}

// The file of the published policy equals what the function for it makes.
TEST_F(Compare, ThePublishedFileIsThePublishedPolicy) {
  ASSERT_EQ(shell("sed 's/devices_per_node: 2/devices_per_node: 4/' timed.yaml >four.yaml").code,
            0);
  const Outcome result = plan(fmt::format(
      "compare --model model.yaml --cluster four.yaml --seq-len 128K --chunk 64K --json "
      "--method fpdt --with {}/configs/strategies/fpdt-published.yaml",
      FPDT_SOURCE_DIR));
  ASSERT_EQ(result.code, 0) << result.err;
  const json rows = json::parse(result.out).at("rows");
  const auto file = std::find_if(rows.begin(), rows.end(), [](const json& row) {
    return row.at("name").get<std::string>().ends_with("fpdt-published.yaml");
  });
  ASSERT_NE(file, rows.end());
  EXPECT_EQ(rows[0].at("settings"), file->at("settings"));
}

// Four heads divide by two of three GPUs. Methods that share queries have all three, and a ladder
// does not lead from two to three.
TEST_F(Compare, EachMethodHasTheGpusThatItCanUse) {
  ASSERT_EQ(shell("sed 's/devices_per_node: 2/devices_per_node: 3/' timed.yaml >three.yaml").code,
            0);
  const std::string compare =
      "compare --model model.yaml --cluster three.yaml --seq-len 512 --ladder --lengths 512 "
      "--draw c.svg";
  const Outcome result = plan(compare + " --json");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "note: FPDT: 1 of 3 GPUs stay unused"));
  EXPECT_TRUE(says(result.err, "note: USP has no row: 3 GPUs form no grid for it"));
  constexpr std::string_view kMethods[] = {"fpdt", "alst",         "ulysses", "megatron",
                                           "lss",  "allgather-cp", "ring",    "zigzag"};
  EXPECT_FALSE(says(result.err, "note: LSS: "));
  EXPECT_TRUE(says(result.err, "more GPUs than FPDT can"));
  const json object = json::parse(result.out);
  EXPECT_FALSE(object.contains("ladder"));
  const json& rows = object.at("rows");
  ASSERT_EQ(rows.size(), 17U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("ranks"), i < 8 ? 2 : 3) << i;
    EXPECT_EQ(rows[i].at("published"), i < 16 && i % 2 == 0) << i;
    EXPECT_EQ(rows[i].at("best"), i < 16 && i % 2 == 1) << i;
    if (i == 16) continue;
    const std::string_view method = kMethods[i / 2];
    EXPECT_EQ(rows[i].at("method"), method);
    const bool whole =
        method == "ulysses" || method == "megatron" || method == "lss" || method == "ring";
    if (whole && i % 2 == 1) {
      EXPECT_EQ(rows[i].at("chunks"), 1) << method;
    }
    const json& points = object.at("curves")[i].at("points");
    EXPECT_EQ(points.back().at("mfu_full"), rows[i].at("mfu_full")) << i;
  }
}

TEST_F(Compare, WhatDoesNotFitIsTimedAndSaid) {
  const std::string compare = fmt::format(
      "compare {} --seq-len 1K --device-budget 1KiB --ladder --method fpdt", kSweepQuestion);
  const Outcome result = plan(compare);
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(says(result.out, "no: device"));
  EXPECT_TRUE(says(result.out, "What does not fit is timed as if it did"));
  EXPECT_TRUE(says(result.err, "nothing fits"));
  EXPECT_EQ(plan(compare + " --strategy strategy.yaml").code, 2);
}

// A row says what the search says of the same strategy.
TEST_F(Compare, RowsSayWhatLinksCarryAndWhatBinds) {
  const std::string question = fmt::format("{} --seq-len 512 --chunk 64", kSweepQuestion);
  const std::string compare = "compare --method ulysses " + question;
  const json rows = json::parse(plan(compare + " --json").out).at("rows");
  const json answer = json::parse(plan("search " + question + " --json").out);
  EXPECT_EQ(rows.back().at("sent_bytes_per_rank"),
            answer.at("prediction").at("sent_bytes_per_rank"));
  EXPECT_EQ(rows.back().at("binding"), answer.at("binding"));
  const Outcome text = plan(compare);
  for (const char* column : {"sent", "in node", "limited by"}) {
    EXPECT_TRUE(says(text.out, column)) << column;
  }
}

// The picture, the table below the rows and the JSON have the numbers of `compare` at each length.
TEST_F(Compare, DrawsItsRowsOverLengths) {
  const std::string compare = fmt::format(
      "compare {} --host-budget 400KiB --device-budget 700KiB "
      "--method ulysses --chunk 64",
      kSweepQuestion);
  const std::string lengths = "128,512";
  const Outcome drawn = plan(compare + " --seq-len 128 --json --draw c.svg --lengths " + lengths);
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const json object = json::parse(drawn.out);
  const std::string svg = contents("c.svg");
  const std::string table = plan(compare + " --seq-len 128 --lengths " + lengths).out;
  for (const char* text : {"attention counted over the causal half", "out of memory: "}) {
    EXPECT_TRUE(says(svg, text)) << text;
  }
  std::vector<json> rows;
  for (const char* length : {"128", "512"}) {
    rows.push_back(
        json::parse(plan(fmt::format("{} --seq-len {} --json", compare, length)).out).at("rows"));
  }
  const json& curves = object.at("curves");
  ASSERT_EQ(curves.size(), 3U);
  bool any_ends = false;
  for (std::size_t k = 0; k < curves.size(); ++k) {
    const json& points = curves[k].at("points");
    std::int64_t longest = 0;
    std::string line = curves[k].at("name");
    constexpr std::size_t kNameColumn = 19;  // of the longest name
    line.resize(kNameColumn, ' ');
    for (std::size_t i = 0; i < points.size(); ++i) {
      const json& row = rows[i][k];
      EXPECT_EQ(curves[k].at("name"), row.at("name"));
      for (const char* key : {"verdict", "binding", "settings", "mfu_full", "step_seconds",
                              "device_peak_bytes", "sent_bytes_per_rank"}) {
        EXPECT_EQ(points[i].at(key), row.at(key)) << curves[k].at("name") << " " << i << " " << key;
      }
      const bool fits = row.at("verdict") == "fits";
      EXPECT_TRUE(fits || i + 1 == points.size());  // a curve ends where it does not fit
      any_ends = any_ends || !fits;
      if (fits) longest = points[i].at("seq_len");
      const std::string mfu = fmt::format("{:.1f} %", 100 * row.at("mfu_causal").get<double>());
      EXPECT_EQ(says(svg, ": " + mfu + " ("), fits) << mfu;
      line += fmt::format("{:>12}", fits ? mfu : "no: " + row.at("binding").get<std::string>());
    }
    EXPECT_TRUE(says(table, "\n" + line + "\n")) << line << "in\n" << table;
    EXPECT_EQ(curves[k].at("longest_tokens"), longest);
  }
  EXPECT_TRUE(any_ends);
  const std::string square = plan(compare + " --seq-len 128 --mfu full --lengths 128").out;
  EXPECT_TRUE(says(square, "over the full square, as published papers count")) << square;
  const double most = rows[0].back().at("mfu_full").get<double>();
  EXPECT_TRUE(says(square, fmt::format("{:.1f} %\n", 100 * most))) << square;
}

// Without lengths, they go on to the first at which nothing fits.
TEST_F(Compare, DrawsUsualLengths) {
  const Outcome result = plan(fmt::format(
      "compare {} --seq-len 128 --host-budget 400KiB --device-budget 700KiB --json --draw c.html "
      "--method ulysses --chunk 64",
      kSweepQuestion));
  ASSERT_EQ(result.code, 0) << result.err;
  const json curves = json::parse(result.out).at("curves");
  std::size_t most = 0;
  for (const json& curve : curves) most = std::max(most, curve.at("points").size());
  EXPECT_GT(most, 2U);
  EXPECT_LE(most, 9U);
  for (const json& curve : curves) {
    if (curve.at("points").size() < most) continue;
    EXPECT_EQ(curve.at("points").front().at("verdict"), "fits");
    EXPECT_EQ(curve.at("points").back().at("verdict"), "infeasible");
  }
  EXPECT_TRUE(says(contents("c.html"), "<table>"));
}

TEST_F(Compare, AWrongPictureIsKnownBeforeTheWork) {
  const std::string compare =
      fmt::format("compare {} --seq-len 128 --method ulysses --chunk 64", kSweepQuestion);
  struct Case {
    std::string_view flags, message;
    int code;
  };
  for (const Case& one :
       {Case{"--draw c.pdf", "expected a file that ends in .html, .svg or .png", 2},
        Case{"--draw nowhere/c.svg", "nowhere/c.svg", 7},
        Case{"--draw c.svg --lengths 64,x", "--lengths, entry 2: expected 1 to 1G", 2},
        Case{"--draw c.html --width 800", "--width and --height are for pictures", 2},
        Case{"--draw c.svg --width 800 --height 100 --lengths 64", "the curves need at least", 2},
        Case{"--theme dark", "--theme", 2}}) {
    const Outcome result = plan(fmt::format("{} {}", compare, one.flags));
    EXPECT_EQ(result.code, one.code) << one.flags;
    EXPECT_TRUE(says(result.err, one.message)) << one.flags << ": " << result.err;
  }
}

}  // namespace
}  // namespace fpdt::test
