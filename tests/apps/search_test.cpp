// fpdt-plan search: output for programs, the files that are written, pins and budgets
// that are kept, and the answer when nothing fits.
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/units.h"
#include "fpdt/plan/methods/method.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

using nlohmann::json;

constexpr std::string_view kQuestion = "--model model.yaml --cluster timed.yaml";

class Search : public CommandLine {
 protected:
  [[nodiscard]] Outcome search(std::string_view more) const {
    return plan(fmt::format("search {} {}", kQuestion, more));
  }
  [[nodiscard]] json answer(std::string_view more, int code = 0) const {
    const Outcome result = search(fmt::format("--json {}", more));
    EXPECT_EQ(result.code, code) << result.err;
    return json::parse(result.out);
  }
};

// The names and types that other programs rely on.
void expect_object(const json& object) {
  for (const char* key : {"verdict", "binding"}) EXPECT_TRUE(object.at(key).is_string()) << key;
  const json& strategy = object.at("strategy");
  const json& method = strategy.at("method");
  EXPECT_TRUE(method.is_null() || method_named(method.get<std::string>()) != nullptr);
  for (const char* key : {"ranks", "chunk_tokens"}) {
    EXPECT_TRUE(strategy.at(key).is_number_integer()) << key;
  }
  const json& prediction = object.at("prediction");
  EXPECT_EQ(prediction.is_null(), object.at("verdict") == "infeasible");
  for (const char* key :
       {"device_peak_bytes", "host_peak_bytes_per_rank", "outside_arena_bytes",
        "outside_workspace_bytes", "outside_page_tables_bytes", "host_outside_bytes"}) {
    EXPECT_TRUE(prediction.is_null() || prediction.at(key).is_number_integer()) << key;
  }
  for (const char* key : {"candidates", "simulated"}) {
    EXPECT_TRUE(object.at("search").at(key).is_number_integer()) << key;
  }
  EXPECT_TRUE(object.at("search").at("seconds").is_number());
  EXPECT_EQ(object.at("model").at("parameters"), 12112);
}

TEST_F(Search, PromisesToPrograms) {
  const json object = answer("--seq-len 512 --device-budget 1MiB");
  expect_object(object);
  EXPECT_EQ(object.at("verdict"), "fits");
  const std::set<std::string> bindings{"device", "host", "compute", "copies", "collectives"};
  EXPECT_TRUE(bindings.contains(object.at("binding")));
  EXPECT_EQ(object.at("strategy").at("ranks"), 2);
  const json& prediction = object.at("prediction");
  for (const char* key :
       {"step_seconds", "tokens_per_second_per_gpu", "mfu_causal", "mfu_full", "hfu"}) {
    EXPECT_GT(prediction.at(key).get<double>(), 0) << key;
  }
  const double seconds = prediction.at("step_seconds");
  EXPECT_GE(prediction.at("step_seconds_slow_fast").at(0), seconds);
  EXPECT_LE(prediction.at("step_seconds_slow_fast").at(1), seconds);
  EXPECT_LT(prediction.at("mfu_causal"), prediction.at("mfu_full"));
  std::int64_t sum = 0;
  for (const auto& [part, bytes] : prediction.at("device_bytes").items()) {
    EXPECT_GE(bytes.get<std::int64_t>(), 0) << part;
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(sum, prediction.at("device_peak_bytes"));
  EXPECT_LE(sum, 1 << 20);
  const json& parts = prediction.at("device_bytes");
  for (const char* key : {"parameters", "gradients", "optimizer", "activations", "staging"}) {
    EXPECT_TRUE(parts.contains(key)) << key;
  }
  // Both ranks are on the one node, and loading takes more than saving.
  const std::int64_t load = prediction.at("host_loading_bytes_per_rank");
  EXPECT_EQ(prediction.at("host_loading_bytes_per_node"), 2 * load);
  EXPECT_EQ(prediction.at("host_peak_bytes_per_node"),
            2 * (prediction.at("host_peak_bytes_per_rank").get<std::int64_t>() + load));
  const std::int64_t save = prediction.at("host_saving_bytes_per_rank");
  EXPECT_GT(save, 0);
  EXPECT_LT(save, load);
  EXPECT_EQ(prediction.at("host_saving_bytes_per_node"), 2 * save);
}

TEST_F(Search, SaysWhereRatesAreFromAndWhatComesNext) {
  const Outcome found = search("--seq-len 512 --out-dir out");
  EXPECT_TRUE(says(found.out, "\nrates      made for this test\n")) << found.out;
  EXPECT_TRUE(
      says(found.out,
           "\nnext       draw the step: fpdt-plan draw out/schedule.json --draw step.html\n"));
  EXPECT_TRUE(says(found.out, "\nlimited by "));
  EXPECT_TRUE(says(found.out,
                   " train with it: fpdt-run train out/schedule.json --data FILE --steps 100\n"));
}

// Without its weights a published model would train from noise, and without the backend on a CPU.
TEST_F(Search, NamesTheWeightsAndTheBackendToTrainWith) {
  const std::string home = fmt::format("{}/tests/fixtures/hf/qwen2", FPDT_SOURCE_DIR);
  ASSERT_EQ(shell("sed 's/^outside: .*/outside: {context: 1MiB}/' timed.yaml >gpus.yaml").code, 0);
  ASSERT_EQ(shell(fmt::format("mkdir bare && cp {}/config.json bare", home)).code, 0);
  const auto next = [&](const std::string& model, std::string_view cluster) {
    const Outcome found = plan(
        fmt::format("search --model {} --cluster {} --seq-len 64 --out-dir out", model, cluster));
    EXPECT_EQ(found.code, 0) << found.err;
    const std::string_view begin = "train with it: fpdt-run train out/schedule.json";
    const std::size_t at = found.out.find(begin);
    return at == std::string::npos ? found.out : found.out.substr(at + begin.size());
  };
  const std::string end = " --data FILE --steps 100\n";
  EXPECT_EQ(next(home, "timed.yaml"), " --init " + home + end);
  EXPECT_EQ(next(home + "/config.json", "gpus.yaml"), " --init " + home + " --backend cuda" + end);
  EXPECT_EQ(next("bare", "gpus.yaml"), " --backend cuda" + end);
}

// One rank may have the memory of the whole node, half of it on the other NUMA node.
TEST_F(Search, SaysWhatANumaNodeCannotHold) {
  ASSERT_EQ(shell("sed 's/^nodes: 1/&\\nnuma_nodes: 2/' timed.yaml >numa.yaml").code, 0);
  const std::string question =
      "search --model model.yaml --cluster numa.yaml --seq-len 4K --device-budget 1MiB --json";
  for (const auto& [flags, fits] : {std::pair("--gpus 1 --host-budget 900KiB", false),
                                    std::pair("--gpus 1 --host-budget 1GiB", true)}) {
    const Outcome found = plan(fmt::format("{} {}", question, flags));
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(json::parse(found.out).at("prediction").at("host_fits_numa_nodes"), fits) << flags;
  }
  const std::string lowered =
      "lower --model model.yaml --cluster numa.yaml --gpus 1 --strategy strategy.yaml --seq-len "
      "512 --out-dir numa --host-budget ";
  EXPECT_TRUE(says(plan(lowered + "512KiB").out, "NUMA        ranks of one NUMA node hold"));
  EXPECT_FALSE(says(plan(lowered + "1GiB").out, "NUMA"));
}

TEST_F(Search, PrintsLinesThatFitAScreen) {
  ASSERT_EQ(shell("sed 's/^nodes: 1/&\\nnuma_nodes: 2/' timed.yaml >numa.yaml").code, 0);
  const Outcome note = plan(
      "search --model model.yaml --cluster numa.yaml --gpus 1 --seq-len 4K --host-budget 900KiB "
      "--device-budget 1MiB");
  EXPECT_TRUE(says(note.out, "ranks of one NUMA node hold"));
  const Outcome replicas = search("--seq-len 512 --batch 2 --device-budget 900KiB");
  EXPECT_TRUE(says(replicas.out, "in 2 replicas"));
  const Outcome lowered = plan(
      "lower --model model.yaml --cluster numa.yaml --gpus 1 --strategy strategy.yaml --seq-len "
      "512 --out-dir numa --host-budget 512KiB");
  EXPECT_TRUE(says(lowered.out, "NUMA        ranks of one NUMA node hold"));
  std::istringstream lines(note.out + replicas.out + lowered.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

// If nothing fits, the object is the same and also lists similar questions that fit.
TEST_F(Search, SaysWhatIsNearAndFits) {
  const json object =
      answer("--seq-len 64K --device-budget 16MiB --host-budget 1MiB --out-dir none", 3);
  expect_object(object);
  EXPECT_EQ(object.at("verdict"), "infeasible");
  EXPECT_EQ(object.at("binding"), "host");
  const json& need = object.at("needs").at(0);
  EXPECT_EQ(need.at("memory"), "host");
  EXPECT_EQ(need.at("have_bytes"), 1 << 20);
  EXPECT_GT(need.at("need_bytes"), 1 << 20);
  EXPECT_FALSE(exists("none"));
  ASSERT_GE(object.at("nearest").size(), 2U);
  for (const json& near : object.at("nearest")) {
    const std::string flag = near.at("flag");
    std::string question = flag;
    for (const std::string part :
         {"--seq-len 64K", "--device-budget 16MiB", "--host-budget 1MiB"}) {
      if (!flag.starts_with(part.substr(0, part.find(' ')))) question += " " + part;
    }
    EXPECT_EQ(search(question).code, 0) << near;
  }
  const json device = answer("--seq-len 512 --device-budget 1KiB", 3);
  expect_object(device);
  EXPECT_EQ(device.at("binding"), "device");
  const Outcome text = search("--seq-len 512 --device-budget 1KiB");
  EXPECT_TRUE(says(text.out, "DOES NOT FIT"));
  EXPECT_TRUE(says(text.out, "\nshort of   "));
  EXPECT_TRUE(says(text.out, "\nwould fit  "));
  EXPECT_TRUE(says(text.out, "--device-budget"));
}

// More GPUs than a part of a node has come from the rest of the node first, then from other nodes;
// without a network there are no others.
TEST_F(Search, OffersOnlyMachinesThatThereAre) {
  std::string timed = contents("timed.yaml");
  timed = std::regex_replace(timed, std::regex("  network: 1e8\n"), "");
  timed = std::regex_replace(timed, std::regex("devices_per_node: 2"), "devices_per_node: 4");
  write("alone.yaml", timed);
  const std::string tight = "search --model model.yaml --cluster alone.yaml --seq-len 1K --json";
  const Outcome one = plan(fmt::format("{} --gpus 1 --device-budget 160KiB", tight));
  ASSERT_EQ(one.code, 3) << one.err;
  const json answer = json::parse(one.out);
  for (const json& near : answer.at("nearest")) {
    const std::string flag = near.at("flag");
    if (!flag.starts_with("--gpus")) continue;
    EXPECT_EQ(plan(fmt::format("{} {} --device-budget 160KiB", tight, flag)).code, 0) << flag;
  }
  const Outcome all = plan(fmt::format("{} --host-budget 1KiB", tight));
  ASSERT_EQ(all.code, 3) << all.err;
  EXPECT_EQ(all.out.find("--gpus"), std::string::npos) << all.out;
}

TEST_F(Search, PlanFedBackIsTheSameSchedule) {
  for (const std::string_view how : {"--device-budget 400KiB", "--host-budget 700KiB", ""}) {
    const Outcome first = search(fmt::format("--seq-len 512 {} --out-dir first", how));
    ASSERT_EQ(first.code, 0) << first.out << first.err;
    const Outcome second =
        search(fmt::format("--seq-len 512 {} --strategy first/plan.yaml --out-dir second", how));
    ASSERT_EQ(second.code, 0) << second.out << second.err;
    EXPECT_EQ(contents("second/schedule.json"), contents("first/schedule.json"));
    EXPECT_EQ(plan("verify first/schedule.json").code, 0);
  }
}

TEST_F(Search, TwoRunsWriteTheSameBytes) {
  const std::regex seconds("\"seconds\":[^}]*");
  std::string objects[2];
  for (const int run : {0, 1}) {
    const Outcome result =
        search(fmt::format("--seq-len 512 --json --device-budget 400KiB --out-dir run{}", run));
    ASSERT_EQ(result.code, 0) << result.err;
    objects[run] = std::regex_replace(result.out, seconds, "");
    const std::string schedule = fmt::format("run{}/schedule.json", run);
    for (const char* out : {"step.svg", "step.html", "graph.dot --graph --block forward"}) {
      EXPECT_EQ(plan(fmt::format("draw {} --out run{}/{}", schedule, run, out)).code, 0) << out;
    }
    for (const char* format : {"perfetto", "memory-viz"}) {
      EXPECT_EQ(
          plan(fmt::format("export {} --format {} --out run{}/{}", schedule, format, run, format))
              .code,
          0);
    }
    const Outcome simulated = plan(fmt::format("simulate {} --json", schedule));
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    write(fmt::format("run{}/simulate", run), simulated.out);
  }
  EXPECT_EQ(objects[0], objects[1]);
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path("run0"))) {
    const std::string name = file.path().filename();
    EXPECT_EQ(contents("run0/" + name), contents("run1/" + name)) << name;
    ++files;
  }
  EXPECT_EQ(files, 8U);
}

TEST_F(Search, ExportsAreCompressedByTheirName) {
  ASSERT_EQ(search("--seq-len 512 --out-dir out").code, 0);
  ASSERT_EQ(plan("export out/schedule.json --format perfetto --out step.json").code, 0);
  ASSERT_EQ(plan("export out/schedule.json --format perfetto --out step.json.gz").code, 0);
  EXPECT_LT(contents("step.json.gz").size(), contents("step.json").size() / 4);
  EXPECT_EQ(shell("gzip -dc step.json.gz | cmp - step.json").code, 0);
  const Outcome refused = plan("export out/schedule.json --format memory-viz --out step.pickle.gz");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused.err, "expected a name that ends in .pickle")) << refused.err;
}

TEST_F(Search, DrawsSlides) {
  ASSERT_EQ(search("--seq-len 512 --out-dir out").code, 0);
  const auto draw = [&](const std::string& flags) {
    return plan("draw out/schedule.json " + flags);
  };
  ASSERT_EQ(draw("--out slide.svg --width 1920 --height 1080 --theme dark").code, 0);
  EXPECT_TRUE(says(contents("slide.svg"), "width=\"1920\" height=\"1080\""));
  ASSERT_EQ(draw("--out dark.html --theme dark").code, 0);
  for (const char* wrong : {"--out step.svg --height 1080", "--out step.svg --width 1e9",
                            "--out step.svg --width 399", "--out step.html --width 1920",
                            "--out step.png --graph", "--out step.svg --width 1920 --height 300"}) {
    EXPECT_EQ(draw(wrong).code, 2) << wrong;
  }
  // A program that is missing is named with its package.
  write("rsvg-convert", "#!/bin/sh\ncp \"$3\" \"$2\"\n");
  const std::string png = "$PLAN draw out/schedule.json --out slide.png";
  ASSERT_EQ(shell("chmod +x rsvg-convert && PATH=$PWD:$PATH " + png).code, 0);
  EXPECT_TRUE(says(contents("slide.png"), "<svg"));
  const Outcome missing = shell("export PLAN; PATH=/nowhere; " + png);
  EXPECT_EQ(missing.code, 7);
  EXPECT_TRUE(says(missing.err, "install librsvg2-bin")) << missing.err;
}

// The schedule file takes the step time that the search promises.
TEST_F(Search, FileTakesThePromisedTime) {
  const json promised = answer("--seq-len 512 --out-dir out");
  const Outcome simulated = plan("simulate out/schedule.json --json");
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  const double nanoseconds = json::parse(simulated.out).at("nanoseconds");
  // Calls overlap, but blocks share the step.
  double blocks = 0;
  for (const json& block : json(json::parse(simulated.out).at("blocks"))) {
    blocks += block.at("nanoseconds").get<double>();
  }
  EXPECT_EQ(blocks, nanoseconds);
  // The picture shows the bytes that the search promises, part by part.
  ASSERT_EQ(plan("draw out/schedule.json --out step.svg").code, 0);
  const std::string picture = contents("step.svg");
  const json parts = promised.at("prediction").at("device_bytes");
  for (const char* part : {"parameters", "gradients", "optimizer", "activations"}) {
    const std::string bytes = format_bytes(Bytes{parts.at(part).get<std::int64_t>()});
    const std::regex row(fmt::format(">{}</text>\\n<text [^>]*>{}</text>", part, bytes));
    EXPECT_TRUE(std::regex_search(picture, row)) << part << " " << bytes;
  }
  // The page adds up to the same times.
  ASSERT_EQ(plan("draw out/schedule.json --draw step.html").code, 0);
  const std::string page = contents("step.html");
  const std::size_t data = page.find("type=\"application/json\">") + 24;
  const json drawn = json::parse(page.substr(data, page.find("</script>", data) - data));
  EXPECT_EQ(drawn.at("traces")[0].at("end"), nanoseconds);
  double busy = 0, sums = 0;
  for (const json& time : json(json::parse(simulated.out).at("busy_nanoseconds"))) {
    busy += time.get<double>();
  }
  for (const json& time : drawn.at("sums")[0][1]) sums += time.get<double>();
  EXPECT_NEAR(sums, busy, 1e-3 * busy);
  EXPECT_DOUBLE_EQ(1e-9 * nanoseconds, promised.at("prediction").at("step_seconds").get<double>());
  std::string quick = contents("timed.yaml");
  quick = std::regex_replace(quick, std::regex("peak_flops: 1e10"), "peak_flops: 1e12");
  quick = std::regex_replace(quick, std::regex("matmul: .*"), "matmul: 5e11");
  write("quick.yaml", quick);
  const Outcome other = plan("simulate out/schedule.json --cluster quick.yaml --json");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_LT(json::parse(other.out).at("nanoseconds"), nanoseconds);
}

// A problem that was changed by hand is checked like one from flags.
TEST_F(Search, SimulatesNoImpossibleProblem) {
  ASSERT_EQ(search("--seq-len 256 --out-dir out").code, 0);
  const std::string whole =
      std::regex_replace(contents("out/schedule.json"), std::regex(",\\s*\"hash\":\"[^\"]*\""), "");
  struct Damage {
    std::string key, value, message;
  };
  for (const Damage& damage :
       {Damage{"\"nodes\":1", "\"nodes\":0", "expected 1 to 65536 nodes"},
        {"\"devices_per_node\":2", "\"devices_per_node\":4", "has 2 ranks, its problem 4"},
        {"\"seq_len\":256", "\"seq_len\":0", "seq-len: expected 1 to"},
        {"\"problem\":\\{", "\"problem\":{\"none\":0,", "unknown key"},
        {"\"op_seconds\":", "\"op_seconds\":-", "op_seconds: expected"}}) {
    write("damaged.json", std::regex_replace(whole, std::regex(damage.key), damage.value));
    for (const char* verb : {"simulate damaged.json", "draw damaged.json --out x.svg",
                             "export damaged.json --format perfetto --out x.json"}) {
      const Outcome result = plan(verb);
      EXPECT_EQ(result.code, 2) << damage.value << ": " << result.err;
      EXPECT_TRUE(says(result.err, damage.message));
    }
  }
  EXPECT_FALSE(exists("x.svg"));
  EXPECT_FALSE(exists("x.json"));
}

TEST_F(Search, HoldsItsPins) {
  const auto strategy = [&](std::string_view pins) {
    return answer(fmt::format("--seq-len 512 {}", pins)).at("strategy");
  };
  EXPECT_EQ(strategy("--method ulysses").at("chunks"), 1);
  EXPECT_EQ(strategy("--method ulysses").at("method"), "ulysses");
  EXPECT_EQ(strategy("--method ulysses --chunk 512").at("method"), "ulysses");
  EXPECT_GT(strategy("--method fpdt").at("chunks"), 1);
  EXPECT_EQ(strategy("--chunk 64").at("chunk_tokens"), 64);
  EXPECT_EQ(strategy("--gpus 1").at("ranks"), 1);
  EXPECT_EQ(strategy("--gpus 4").at("ranks"), 4);
  const json given = strategy("--strategy strategy.yaml");
  EXPECT_EQ(given.at("chunk_tokens"), 32);
  EXPECT_EQ(given.at("settings").at("storage"), "f32");
  for (const std::int64_t kib : {200, 400, 1000}) {
    const json device =
        answer(fmt::format("--seq-len 512 --device-budget {}KiB", kib)).at("prediction");
    EXPECT_LE(device.at("device_peak_bytes"), kib << 10);
    const json host =
        answer(fmt::format("--seq-len 512 --host-budget {}KiB", kib + 400)).at("prediction");
    EXPECT_LE(host.at("host_peak_bytes_per_node"), (kib + 400) << 10);
  }
}

// --published takes the strategy of the method and searches nothing. Too big is too big.
TEST_F(Search, TakesThePublishedStrategy) {
  const json fpdt = answer("--seq-len 128K --device-budget 1GiB --method fpdt --published");
  EXPECT_EQ(fpdt.at("search").at("simulated"), 1);
  const json& strategy = fpdt.at("strategy");
  EXPECT_EQ(strategy.at("method"), "fpdt");
  EXPECT_EQ(strategy.at("chunk_tokens"), 65536);
  EXPECT_EQ(strategy.at("settings").at("copies").at("duplex"), false);
  // On three GPUs, two sequences of two heads leave one unused, as in a search.
  ASSERT_EQ(shell("sed 's/^devices_per_node: 2/devices_per_node: 3/' timed.yaml >three.yaml").code,
            0);
  const Outcome three = plan(
      "search --model model.yaml --cluster three.yaml --seq-len 510 --method "
      "fpdt --published --batch 2 --json");
  EXPECT_TRUE(says(three.err, "note: 1 of 3 GPUs stay unused: 2 sequences and ")) << three.err;
  EXPECT_EQ(three.code, 0);
  const json ulysses = answer("--seq-len 512 --method ulysses --published --batch 2");
  EXPECT_EQ(ulysses.at("strategy").at("method"), "ulysses");
  EXPECT_EQ(ulysses.at("strategy").at("settings").at("micro_batches"), 2);
  const std::string one = "--seq-len 512 --method ulysses --published";
  const json big = answer(one + " --device-budget 100KiB", 3);
  EXPECT_EQ(big.at("verdict"), "infeasible");
  EXPECT_EQ(big.at("strategy").at("settings"), answer(one).at("strategy").at("settings"));
  const std::string small = fmt::format("search {} --device-budget 100KiB", kQuestion);
  const std::string method = " --seq-len 512 --method ulysses";
  EXPECT_TRUE(says(plan(small + method + " --published").out, "memory: the strategy needs "));
  EXPECT_TRUE(says(plan(small + method).out, "memory: the least found of Ulysses needs "));
}

TEST_F(Search, RefusesWhatContradicts) {
  struct Wrong {
    std::string flags, message;
  };
  for (const Wrong& wrong :
       {Wrong{"--strategy strategy.yaml --chunk 64", "--strategy decides everything"},
        {"--method ulysses --chunk 64", "leave --chunk or --method out"},
        {"--published", "--published: name the method"},
        {"--published --method fpdt --chunk 64", "--published decides everything but the batch"},
        {"--chunk 63", "nearest is 64"},
        {"--chunk ''", "--chunk: expected a value"},
        {"--seq-len ''", "--seq-len: expected a value"},
        {"--clip ''", "--clip: expected a finite number"},
        {"--device-budget 2GiB", "more than the 1.00 GiB of a device"},
        {"--device-budget 0", "--device-budget: expected a size"},
        {"--gpus 3", "nearest are 2 and 4"},
        {"--method nemotron", "expected one of fpdt"}}) {
    const std::string length = wrong.flags.starts_with("--seq-len") ? "" : "--seq-len 512";
    const Outcome result = search(fmt::format("{} {} --out-dir no", length, wrong.flags));
    EXPECT_EQ(result.code, 2) << wrong.flags;
    EXPECT_TRUE(says(result.err, wrong.message));
    EXPECT_FALSE(exists("no"));
  }
  const Outcome untimed = plan("search --model model.yaml --cluster cluster.yaml --seq-len 64");
  EXPECT_EQ(untimed.code, 2);
  EXPECT_TRUE(says(untimed.err, "rates are missing: peak_flops, matmul"));
  const Outcome unknown = plan("serach --model model.yaml");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(says(unknown.err, "serach: no such command; did you mean search?"));
}

TEST_F(Search, AFullDiskKeepsTheLastPlan) {
  ASSERT_EQ(search("--seq-len 256 --out-dir out").code, 0);
  const std::string kept = contents("out/plan.yaml") + contents("out/schedule.json");
  const Outcome full =
      shell(fmt::format("ulimit -f 8; $PLAN search {} --seq-len 512 --out-dir out", kQuestion));
  EXPECT_EQ(full.code, 7) << full.err;
  EXPECT_EQ(contents("out/plan.yaml") + contents("out/schedule.json"), kept);
  write("file", "x");
  EXPECT_EQ(search("--seq-len 256 --out-dir file").code, 7);
  EXPECT_EQ(search("--seq-len 256 --out-dir file/below").code, 7);
  EXPECT_EQ(shell(fmt::format("$PLAN search {} --seq-len 256 >/dev/full", kQuestion)).code, 7);
}

// The schedule that a search writes can be trained and agrees with the reference.
TEST_F(Search, ItsScheduleTrains) {
  ASSERT_EQ(search("--seq-len 64 --device-budget 300KiB --out-dir out").code, 0);
  const Outcome trained = run("train out/schedule.json --data text.txt --steps 2 --json");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json::parse(trained.out).at("losses").size(), 2U);
  const Outcome checked = run("check out/schedule.json");
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
}

}  // namespace
}  // namespace fpdt::test
