// Tests fpdt-run bench, and compares a training step with its file.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/cost/machine.h"
#include "fpdt/io/cluster_file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

using Bench = CommandLine;

TEST_F(Bench, WritesAClusterThatCanBeTimed) {
  const Outcome result =
      run("bench --quick --ranks 2 --storage f32 --name here --out here.yaml "
          "--device-memory 3GiB --host-memory 5GiB");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.out, "wrote here.yaml")) << result.out;
  EXPECT_TRUE(says(result.out, "attention_backward")) << result.out;
  const ClusterSpec cluster = load_cluster(path("here.yaml"));
  EXPECT_NO_THROW(Machine(cluster, {}));
  EXPECT_EQ(cluster.name, "here");
  EXPECT_EQ(cluster.devices(), 2);
  EXPECT_EQ(cluster.device_memory, Bytes{std::int64_t{3} << 30});
  EXPECT_EQ(cluster.host_memory, Bytes{std::int64_t{5} << 30});
  EXPECT_TRUE(says(cluster.source, "measured by fpdt-run bench --quick")) << cluster.source;
  EXPECT_TRUE(says(cluster.source, "2 ranks")) << cluster.source;
}

TEST_F(Bench, StepsAreComparedByKind) {
  const Outcome bench = run("bench --quick --ranks 2 --storage f32 --out here.yaml --json");
  ASSERT_EQ(bench.code, 0) << bench.err;
  const auto measured = nlohmann::json::parse(bench.out);
  EXPECT_EQ(measured.at("wrote"), "here.yaml");
  EXPECT_GT(measured.at("measurements").size(), 40U);

  const std::string train = "train plan/schedule.json --data text.txt --machine here.yaml";
  const Outcome table = run(train + " --steps 3");
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* part : {"predicted ms", "step ", "attention_forward", "all_to_all", "comm.0"}) {
    EXPECT_TRUE(says(table.out, part)) << part << " in " << table.out;
  }
  const Outcome json = run(train + " --steps 2 --json");
  ASSERT_EQ(json.code, 0) << json.err;
  const auto time = nlohmann::json::parse(json.out).at("time");
  EXPECT_GT(time.at("predicted_seconds"), 0);
  EXPECT_GT(time.at("measured_seconds"), 0);
  EXPECT_GT(time.at("kinds").size(), 10U);

  const Outcome one_step = run(train + " --steps 1");
  EXPECT_EQ(one_step.code, 2);
  EXPECT_TRUE(says(one_step.err, "--machine compares a step after the first")) << one_step.err;
}

// Draws predicted and measured lanes side by side, in every format.
TEST_F(Bench, StepsAreDrawn) {
  ASSERT_EQ(run("bench --quick --ranks 2 --storage f32 --out here.yaml").code, 0);
  const std::string train =
      "train plan/schedule.json --data text.txt --steps 2 --machine here.yaml --draw ";
  for (const char* picture : {"step.html", "step.svg", "step.json"}) {
    const Outcome result = run(train + picture);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(exists(picture));
  }
  for (const char* rank : {"rank 0", "rank 1"}) {
    EXPECT_TRUE(says(contents("step.svg"), fmt::format(">{}<", rank)));
    EXPECT_TRUE(says(contents("step.html"), fmt::format("\"label\":\"{}\"", rank)));
  }
  const auto events = nlohmann::json::parse(contents("step.json")).at("traceEvents");
  std::vector<std::string> processes;
  for (const auto& event : events) {
    if (event.at("name") == "process_name") processes.push_back(event.at("args").at("name"));
  }
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_TRUE(says(processes[0], "simulated")) << processes[0];
  EXPECT_TRUE(says(processes[1], "rank 0, measured")) << processes[1];
  EXPECT_TRUE(says(processes[2], "rank 1, measured")) << processes[2];
  const Outcome other = run(train + "step.pdf");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(says(other.err, "ends in .html, .svg, .png or .json")) << other.err;
}

// The flags of `fpdt-plan draw`, with the same meaning.
TEST_F(Bench, DrawnStepsHaveASizeAndATheme) {
  ASSERT_EQ(run("bench --quick --ranks 2 --storage f32 --out here.yaml").code, 0);
  const std::string train = "train plan/schedule.json --data text.txt --steps 2";
  const std::string draws = train + " --machine here.yaml --draw ";
  const Outcome drawn = run(draws + "slide.svg --width 1920 --height 1400 --theme dark");
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(says(contents("slide.svg"), "width=\"1920\" height=\"1400\""));
  ASSERT_EQ(plan("draw plan/schedule.json --cluster here.yaml --out plan.svg --theme dark").code,
            0);
  const std::string paper = "#14181E";
  EXPECT_TRUE(says(contents("plan.svg"), paper));
  EXPECT_TRUE(says(contents("slide.svg"), paper));
  for (const std::string& wrong :
       {train + " --theme dark", draws + "step.html --width 1920", draws + "step.json --theme dark",
        draws + "step.svg --height 1080", draws + "step.svg --width 399"}) {
    EXPECT_EQ(run(wrong).code, 2) << wrong;
  }
}

TEST_F(Bench, ThePeakMayBeTheDataSheets) {
  const Outcome bench = run("bench --quick --peak-flops 2e15 --out here.yaml --json");
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_EQ(load_cluster(path("here.yaml")).rates.peak_flops, 2e15);
  const auto found = nlohmann::json::parse(bench.out);
  EXPECT_EQ(found.at("peak_flops"), 2e15);
  for (const auto& one : found.at("measurements")) {
    const bool product = one.at("op") == "matmul";
    if (product) {
      EXPECT_LT(one.at("share_of_ceiling"), 0.1);
    }
    EXPECT_EQ(one.at("share_of_ceiling").is_null(), one.at("op") == "h2d" || one.at("op") == "d2h");
  }
}

TEST_F(Bench, RefusesMachinesThatAreNotMeasuredOrNotThese) {
  const Outcome bare =
      run("train plan/schedule.json --data text.txt --steps 2 --machine cluster.yaml");
  EXPECT_EQ(bare.code, 2);
  EXPECT_TRUE(says(bare.err, "fpdt-run bench")) << bare.err;

  ASSERT_EQ(run("bench --quick --out one.yaml").code, 0);
  const Outcome other =
      run("train plan/schedule.json --data text.txt --steps 2 --machine one.yaml");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(says(other.err, "measure with fpdt-run bench --ranks 2")) << other.err;
}

// A bench that is killed at any moment after its first rates leaves a cluster that can be timed.
TEST_F(Bench, IsOfUseWhenItIsKilled) {
  const Outcome killed = shell(
      "$RUN bench --quick --ranks 2 --declared timed.yaml --out here.yaml & "
      "while ! [ -e here.yaml ] && kill -0 $!; do sleep 0.01; done; kill -9 $!; wait $! "
      "2>/dev/null");
  EXPECT_EQ(killed.code, 137);
  const ClusterSpec cluster = load_cluster(path("here.yaml"));
  EXPECT_NO_THROW(Machine(cluster, {}));
  EXPECT_TRUE(says(cluster.source, "unfinished: it measured only op_seconds")) << cluster.source;
  EXPECT_TRUE(says(cluster.source, "the rest is from timed (made for this test)"))
      << cluster.source;

  const Outcome whole = run("bench --quick --ranks 2 --declared timed.yaml --out here.yaml");
  EXPECT_EQ(whole.code, 0) << whole.err;
  const ClusterSpec finished = load_cluster(path("here.yaml"));
  EXPECT_FALSE(says(finished.source, "unfinished")) << finished.source;
  EXPECT_EQ(finished.rates.network, load_cluster(path("timed.yaml")).rates.network);
  EXPECT_NE(finished.rates.matmul, load_cluster(path("timed.yaml")).rates.matmul);
}

TEST_F(Bench, ShortMeasuresLess) {
  const Outcome both = run("bench --short --quick --out c.yaml");
  EXPECT_EQ(both.code, 2);
  EXPECT_TRUE(says(both.err, "--quick and --short")) << both.err;
}

TEST_F(Bench, RefusesWhatCannotBeMeasured) {
  EXPECT_EQ(run("bench --quick").code, 2);
  EXPECT_EQ(run("bench --quick --out c.yaml --ranks 0").code, 2);
  EXPECT_EQ(run("bench --quick --out c.yaml --storage fp8").code, 2);
  const Outcome memory = run("bench --quick --out c.yaml --device-memory lots");
  EXPECT_EQ(memory.code, 2);
  EXPECT_TRUE(says(memory.err, "--device-memory: expected a size such as 64MiB")) << memory.err;
  EXPECT_EQ(run("bench --quick --out nowhere/c.yaml").code, 7);
}

}  // namespace
}  // namespace fpdt::test
