// fpdt-run train under mpirun: the results of threads, one voice, and one error for all.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/cluster_file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

// Root may run mpirun, more processes than cores are no error, and nothing listens on the network.
constexpr std::string_view kMpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_btl=vader,self ASAN_OPTIONS=detect_leaks=0 timeout -s KILL 100 " FPDT_MPIRUN
    " --bind-to none";
constexpr std::string_view kProcess = "$RUN train --data text.txt --communicator mpi --threads 1";

class ProcessRun : public CommandLine {
 protected:
  // Lowers NAME/schedule.json, of sequences over `ranks / replicas` ranks.
  void lower(std::string_view name, int ranks, int replicas, int tensor = 1) {
    write(fmt::format("{}.yaml", name),
          fmt::format("{}\nmesh: {{replicas: {}, tensor: {}}}\nmicro_batches: 2\n",
                      contents("strategy.yaml"), replicas, tensor));
    std::string cluster = contents("cluster.yaml");
    cluster.replace(cluster.find("devices_per_node: 2"), 19, "devices_per_node: 8");
    write("wide.yaml", cluster);
    const Outcome lowered = plan(fmt::format(
        "lower --model model.yaml --cluster wide.yaml --gpus {1} --strategy {0}.yaml --seq-len "
        "64 --out-dir {0}",
        name, ranks));
    ASSERT_EQ(lowered.code, 0) << lowered.err;
  }
  // `flags` for all processes.
  [[nodiscard]] Outcome job(int processes, std::string_view flags) const {
    return shell(fmt::format("{} -n {} {} {}", kMpirun, processes, kProcess, flags));
  }
  // Two processes with flags of their own.
  [[nodiscard]] Outcome pair(std::string_view first, std::string_view second) const {
    return shell(fmt::format("{0} -n 1 {1} {2} : -n 1 {1} {3}", kMpirun, kProcess, first, second));
  }
  // The kind of the first cause of a job with `--flight-dir flights`, which must be rank 1.
  [[nodiscard]] std::string first_cause() const {
    const Outcome told = run("explain-failure flights --json");
    EXPECT_EQ(told.code, 0) << told.err;
    if (told.code != 0) return "";
    const auto cause = nlohmann::json::parse(told.out).at("cause");
    EXPECT_EQ(cause.at("ranks"), std::vector<int>{1}) << told.out;
    return cause.at("kind");
  }
  void expect_same_checkpoint(std::string_view a, std::string_view b) const {
    for (const char* file : {"config.json", "model.safetensors", "fpdt_state.safetensors"}) {
      const std::string bytes = contents(fmt::format("{}/{}", a, file));
      EXPECT_FALSE(bytes.empty());
      EXPECT_TRUE(bytes == contents(fmt::format("{}/{}", b, file))) << a << "/" << file;
    }
  }
};

// Ranks, replicas, and ranks that share products.
class ProcessCounts : public ProcessRun,
                      public testing::WithParamInterface<std::tuple<int, int, int>> {};
INSTANTIATE_TEST_SUITE_P(SequenceByData, ProcessCounts,
                         testing::Values(std::tuple(2, 1, 1), std::tuple(3, 3, 1),
                                         std::tuple(4, 2, 1), std::tuple(8, 2, 1),
                                         std::tuple(4, 1, 2), std::tuple(8, 2, 4)));

TEST_P(ProcessCounts, TrainAsThreadsDo) {
  const auto [ranks, replicas, tensor] = GetParam();
  lower("many", ranks, replicas, tensor);
  const std::string flags =
      "many/schedule.json --evaluate-every 2 --evaluate-data text.txt --json --steps 3 --save ";
  const Outcome threads = run(fmt::format("train --data text.txt --threads 1 {} threads", flags));
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Outcome processes = job(ranks, flags + "processes");
  ASSERT_EQ(processes.code, 0) << processes.err;
  const auto expected = nlohmann::json::parse(threads.out);
  const auto found = nlohmann::json::parse(processes.out);
  EXPECT_EQ(found.at("processes"), ranks);
  EXPECT_EQ(found.at("losses"), expected.at("losses"));
  EXPECT_EQ(found.at("evaluation_loss"), expected.at("evaluation_loss"));
  EXPECT_EQ(found.at("predicted"), expected.at("predicted"));
  EXPECT_EQ(found.at("measured").at("device_peak_bytes"),
            expected.at("measured").at("device_peak_bytes"));
  EXPECT_TRUE(found.at("memory").at("as_predicted"));
  EXPECT_GT(found.at("sent_bytes").at("measured").at("node"), 0);
  for (const auto& result : {found, expected}) {
    EXPECT_EQ(result.at("sent_bytes").at("measured"), result.at("sent_bytes").at("predicted"));
  }
  // The first moment holds every gradient.
  expect_same_checkpoint("threads", "processes");
  EXPECT_EQ(contents("threads/trainer.json"), contents("processes/trainer.json"));
}

// A checkpoint belongs to no number of ranks, and to neither threads nor processes.
TEST_F(ProcessRun, ResumeWhatThreadsSavedAndTheOtherWayRound) {
  lower("two", 2, 1);
  lower("four", 4, 2);
  ASSERT_EQ(job(2, "two/schedule.json --steps 2 --save a").code, 0);
  ASSERT_EQ(run("train two/schedule.json --data text.txt --threads 1 --steps 2 --save b").code, 0);
  expect_same_checkpoint("a", "b");
  // Four ranks train on twice the sequences, which is another course.
  const std::string more = "four/schedule.json --steps 3 --allow-changes";
  const Outcome processes = job(4, more + " --resume b --save c");
  EXPECT_EQ(processes.code, 0) << processes.err;
  const Outcome threads =
      run(fmt::format("train --data text.txt --threads 1 {} --resume a --save d", more));
  EXPECT_EQ(threads.code, 0) << threads.err;
  expect_same_checkpoint("c", "d");
}

TEST_F(ProcessRun, OneSpeaksAndTheOthersLog) {
  std::filesystem::create_directory(path("flights"));
  write("flights/rank-00000.log", "of an earlier run");
  write("flights/rank-00007.log", "of an earlier run");
  const Outcome result = job(2, "plan/schedule.json --steps 2 --flight-dir flights");
  EXPECT_EQ(result.code, 0);
  const std::string log = contents("flights/rank-00001.log");
  EXPECT_TRUE(says(log, "step 1/2  loss "));
  EXPECT_EQ(log.find("step 2/2"), log.rfind("step 2/2"));
  EXPECT_FALSE(exists("flights/rank-00000.log"));
  EXPECT_FALSE(exists("flights/rank-00007.log"));
  EXPECT_FALSE(exists("flights/rank-00001.flight"));
  EXPECT_TRUE(says(result.out, "peak resident memory of the process, with 1 rank"));
  EXPECT_EQ(result.out.find("2 steps,"), result.out.rfind("2 steps,"));
  EXPECT_EQ(result.err.find("step 2/2"), result.err.rfind("step 2/2"));
}

// The lines of fpdt-run, without those of mpirun.
std::string own_lines(const Outcome& outcome) {
  std::string own;
  std::size_t at = 0;
  while (at < outcome.err.size()) {
    const std::size_t end = std::min(outcome.err.find('\n', at), outcome.err.size());
    const std::string line = outcome.err.substr(at, end - at);
    if (line.starts_with("fpdt-run: ") || line.starts_with("  ")) own += line + "\n";
    at = end + 1;
  }
  return own.substr(0, own.find("  Process name"));
}

TEST_F(ProcessRun, AnErrorOfAllIsSaidOnce) {
  const Outcome none = job(3, "plan/schedule.json --steps 2");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(own_lines(none),
            "fpdt-run: rank 0: plan/schedule.json: is for 2 ranks, but the launcher started 3 "
            "processes; start 2\n");
  const Outcome diverged = job(2, "plan/schedule.json --steps 9 --learning-rate 1e30");
  EXPECT_EQ(diverged.code, 8);
  EXPECT_TRUE(says(own_lines(diverged), "fpdt-run: rank 0: step "));
  EXPECT_EQ(diverged.err.find("Lower the learning rate"),
            diverged.err.rfind("Lower the learning rate"));
}

TEST_F(ProcessRun, WithoutACommunicatorEachIsToldToBeAlone) {
  const std::string train = "$RUN train plan/schedule.json --data text.txt --threads 1 --steps 1";
  const Outcome two = shell(fmt::format("{} -n 2 {}", kMpirun, train));
  EXPECT_EQ(two.code, 0) << two.err;
  constexpr std::string_view kNote = "note: a launcher started 2 processes, and each does all";
  EXPECT_TRUE(says(two.err, kNote));
  EXPECT_EQ(two.err.find(kNote), two.err.rfind(kNote));
  const Outcome one = shell(fmt::format("{} -n 1 {}", kMpirun, train));
  EXPECT_FALSE(says(one.err, "note: a launcher"));
  EXPECT_TRUE(says(shell("LOCAL_RANK=0 RANK=0 WORLD_SIZE=8 " + train).err, "started 8 processes"));
}

TEST_F(ProcessRun, AWrongFlagIsReportedOnce) {
  constexpr std::string_view kWrong = "--stepz: no such flag";
  const Outcome same = job(3, "plan/schedule.json --stepz 2");
  EXPECT_EQ(same.code, 2);
  EXPECT_TRUE(says(same.err, kWrong));
  EXPECT_EQ(same.err.find(kWrong), same.err.rfind(kWrong)) << same.err;
  const Outcome second = pair("plan/schedule.json --steps 2", "plan/schedule.json --stepz 2");
  EXPECT_EQ(second.code, 2);
  EXPECT_TRUE(says(second.err, kWrong));
}

TEST_F(ProcessRun, WhoDiffersIsNamedWithWhat) {
  write("other.txt", contents("text.txt") + "more");
  lower("other", 2, 1);
  const std::string_view same = "plan/schedule.json --steps 2";
  const Outcome steps = pair(same, "plan/schedule.json --steps 3");
  EXPECT_EQ(steps.code, 2);
  EXPECT_EQ(own_lines(steps),
            "fpdt-run: the processes of this job differ:\n  --steps: 3 on rank 1, 2 on rank 0\n");
  const Outcome schedules = pair(same, "other/schedule.json --steps 2");
  EXPECT_EQ(schedules.code, 2);
  EXPECT_TRUE(says(own_lines(schedules), "  schedule: "));
  const Outcome data = shell(fmt::format("{} -n 1 {} {} : -n 1 {} {}", kMpirun, kProcess, same,
                                         "$RUN train --data other.txt --communicator mpi", same));
  EXPECT_EQ(data.code, 2);
  EXPECT_TRUE(says(own_lines(data), "  --data: 4"));
}

// Flags on which messages between processes depend.
TEST_F(ProcessRun, AFlagOfOneIsNamedAndLeavesNothing) {
  const std::string same = "plan/schedule.json --steps 2";
  for (const std::string_view flag :
       {"--save other", "--resume other", "--numa off", "--loss-mask text.txt",
        "--evaluate-every 1 --evaluate-data text.txt", "--communicator nccl", "--backend cuda",
        "--machine timed.yaml", "--deadline 9"}) {
    const Outcome result =
        shell(fmt::format("{0} -n 1 {1} --communicator mpi {2} : -n 1 {1} {3} {2} {4}", kMpirun,
                          "$RUN train --data text.txt --threads 1", same,
                          flag == "--communicator nccl" ? "" : "--communicator mpi", flag));
    EXPECT_EQ(result.code, 2) << flag << result.err;
    const std::string name(flag.substr(0, flag.find(' ')));
    const std::string said = own_lines(result);
    EXPECT_TRUE(said.starts_with("fpdt-run: the processes of this job differ:\n  --")) << said;
    EXPECT_TRUE(says(said, fmt::format("  {}: ", name)));
    EXPECT_TRUE(says(said, " on rank 1, ")) << flag;
    EXPECT_FALSE(says(said, "seed")) << said;
    EXPECT_FALSE(exists(".other.fpdt_new"));
  }
}

TEST_F(ProcessRun, MemoryRefusedOnOneEndsAll) {
  const std::string_view same = "plan/schedule.json --steps 2 --flight-dir flights";
  const Outcome result = pair(same, fmt::format("{} --host-memory 4KiB", same));
  EXPECT_EQ(result.code, 5);
  EXPECT_TRUE(says(own_lines(result), "fpdt-run: rank 1: "));
  EXPECT_TRUE(says(contents("flights/rank-00001.log"), "memory: --host-memory leaves"));
  EXPECT_EQ(first_cause(), "failed");
}

// A limit of the size of files fails as a full disk does. Messages through shared memory would need
// larger files.
TEST_F(ProcessRun, AWriterThatFailsEndsAllAndLeavesTheCheckpoint) {
  const std::string_view more =
      "$RUN train plan/schedule.json --data text.txt --threads 1 --communicator mpi --steps 2 "
      "--resume ck --save ck";
  ASSERT_EQ(job(2, "plan/schedule.json --steps 1 --save ck").code, 0);
  const std::string before = contents("ck/model.safetensors");
  write("limited.sh", "ulimit -f 8\nexec \"$@\"\n");
  const Outcome full =
      shell(fmt::format("{0} --mca btl tcp,self --mca btl_tcp_if_include lo -n 1 sh limited.sh {1} "
                        ": -n 1 {1}",
                        kMpirun, more));
  EXPECT_EQ(full.code, 7) << full.err;
  EXPECT_TRUE(says(own_lines(full), "fpdt-run: rank 0: ck/fpdt_stage/"));
  EXPECT_TRUE(contents("ck/model.safetensors") == before);
  EXPECT_FALSE(exists("ck/fpdt_stage"));
  EXPECT_EQ(shell(fmt::format("{} -n 2 {}", kMpirun, more)).code, 0);
}

// Starts a job that would train for long. After the first step, runs commands, which find the
// processes in pid.0 and pid.1, or sends a signal to rank 1.
class ProcessSignal : public ProcessRun {
 protected:
  [[nodiscard]] Outcome after(std::string_view signal, std::string_view flags) const {
    return then(fmt::format("kill -{} $(cat pid.1)", signal), flags);
  }
  [[nodiscard]] Outcome then(std::string_view commands, std::string_view flags) const {
    return shell(fmt::format(
        "{} -n 2 sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec {} plan/schedule.json --steps "
        "100000 {}' & job=$!; until [ -s pid.1 ] && grep -q 'step 1/' .err || ! kill -0 $job; do "
        "sleep 0.05; done; "
        "{}; wait $job",
        kMpirun, "'$RUN' train --data text.txt --communicator mpi --threads 1", flags, commands));
  }
};

TEST_F(ProcessSignal, ToOneStopsAllAfterTheSameStep) {
  const Outcome finished = after("USR2", "--save ck --json");
  EXPECT_EQ(finished.code, 0) << finished.err;
  const std::int64_t step = nlohmann::json::parse(finished.out).at("steps");
  EXPECT_EQ(nlohmann::json::parse(contents("ck/trainer.json")).at("step"), step);
  EXPECT_EQ(after("TERM", "--save other").code, 143);
  EXPECT_TRUE(exists("other/trainer.json"));
}

TEST_F(ProcessSignal, StopOfOneEndsTheOthersAtTheDeadline) {
  const Outcome stopped = after("STOP", "--deadline 2 --flight-dir flights");
  EXPECT_EQ(stopped.code, 6) << stopped.err;
  EXPECT_TRUE(says(own_lines(stopped), "rank 1 does not respond: rank 0 waited 2 s in "));
  // mpirun lets it run again to end it, and it may hear of the failure before it ends.
  const std::string kind = first_cause();
  EXPECT_TRUE(kind == "gone" || kind == "silent") << kind;
}

// That nobody moved while all were stopped says nothing about them.
TEST_F(ProcessSignal, ASuspendedJobGoesOn) {
  const Outcome finished = then(
      "all=$(cat pid.0 pid.1); kill -STOP $all; sleep 4; kill -CONT $all; sleep 1; "
      "kill -USR2 $(cat pid.1)",
      "--deadline 2 --json");
  EXPECT_EQ(finished.code, 0) << finished.err;
}

TEST_F(ProcessSignal, AKilledRankEndsTheJob) {
  EXPECT_EQ(after("KILL", "--flight-dir flights").code, 137);
  EXPECT_EQ(first_cause(), "gone");
}

// All ranks work at once, and one of the processes writes.
TEST_F(ProcessRun, ABenchMeasuresTheRanksOfAllProcesses) {
  const std::string bench =
      "$RUN bench --quick --storage f32 --threads 1 --communicator mpi --json";
  const Outcome result = shell(fmt::format("{} -n 2 {} --out here.yaml", kMpirun, bench));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(nlohmann::json::parse(result.out).at("measurements").size(), 40U);
  const ClusterSpec cluster = load_cluster(path("here.yaml"));
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_EQ(cluster.devices_per_node, 2);
  EXPECT_GT(cluster.rates.link.typical, 0);
  EXPECT_TRUE(says(cluster.source, "2 ranks in processes over mpi")) << cluster.source;
  const Outcome nowhere = shell(fmt::format("{} -n 2 {} --out none/here.yaml", kMpirun, bench));
  EXPECT_EQ(nowhere.code, 7);
  EXPECT_TRUE(says(own_lines(nowhere), "fpdt-run: rank 0: none/here.yaml")) << nowhere.err;
}

}  // namespace
}  // namespace fpdt::test
