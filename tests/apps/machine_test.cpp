// Flags choose the machine that runs the ranks; without a GPU the errors say so.
#include <fmt/format.h>

#include "command_line.h"

namespace fpdt::test {
namespace {

using Machine = CommandLine;

TEST_F(Machine, FlagsOfTheOtherBackendAreRefused) {
  const std::vector<std::string> commands{"train plan/schedule.json --data text.txt --steps 1",
                                          "check plan/schedule.json", "bench --quick --out c.yaml"};
  for (const std::string& command : commands) {
    for (const auto& [flags, answer] :
         {std::pair("--device 0", "--device needs --backend cuda"),
          std::pair("--deterministic", "--deterministic needs --backend cuda"),
          std::pair("--backend cuda --threads 2", "--threads is for --backend cpu"),
          std::pair("--backend abacus", "abacus"),
          std::pair("--backend cuda --device -1", "such as 0 or 0,1, found \"-1\""),
          std::pair("--backend cuda --device 0,1,0", "expected different numbers of GPUs"),
          std::pair("--backend cuda --device 1,", "found \"1,\"")}) {
      const Outcome result = run(fmt::format("{} {}", command, flags));
      EXPECT_EQ(result.code, 2) << command << flags;
      EXPECT_TRUE(says(result.err, answer)) << command << flags << ": " << result.err;
    }
    EXPECT_EQ(run(command + " --backend cpu --threads 1").code, 0) << command;
  }
}

TEST_F(Machine, ThreadsNeedNoStackOfTheShells) {
  for (const char* command : {"train plan/schedule.json --data text.txt --steps 2",
                              "check plan/schedule.json", "bench --quick --out c.yaml"}) {
    const Outcome result = shell(fmt::format("ulimit -s 64; $RUN {}", command));
    EXPECT_EQ(result.code, 0) << command << ": " << result.err;
  }
}

TEST_F(Machine, HostMemoryIsWhatTheFlagSays) {
  for (const char* command : {"train plan/schedule.json --data text.txt --steps 1",
                              "check plan/schedule.json", "bench --quick --out c.yaml"}) {
    const Outcome little = run(fmt::format("{} --host-memory 64KiB", command));
    EXPECT_EQ(little.code, 5) << command;
    EXPECT_TRUE(says(little.err, "--host-memory leaves 0 B")) << little.err;
    EXPECT_EQ(run(fmt::format("{} --host-memory 1000TiB", command)).code, 0) << command;
    const Outcome wrong = run(fmt::format("{} --host-memory lots", command));
    EXPECT_EQ(wrong.code, 2) << command;
    EXPECT_TRUE(says(wrong.err, "--host-memory: expected a size such as 64MiB")) << wrong.err;
  }
}

// A user with too little memory learns of all that is needed, and of a backend that was forgotten.
TEST_F(Machine, RanksOnTheCpuNeedTheMemoryOfDevicesAndHosts) {
  const auto refused = [&](std::string_view schedule) {
    const Outcome result =
        run(fmt::format("train {} --data text.txt --steps 1 --host-memory 64KiB", schedule));
    EXPECT_EQ(result.code, 5) << result.err;
    return result.err;
  };
  const std::string here = refused("plan/schedule.json");
  EXPECT_TRUE(says(here, "this host with 2 ranks on the CPU (")) << here;
  EXPECT_TRUE(says(here, " in place of devices, ")) << here;
  EXPECT_TRUE(says(here, " as host memory) needs ")) << here;
  ASSERT_EQ(shell("sed 's/^outside: .*/outside: {context: 1MiB}/' cluster.yaml >gpus.yaml").code,
            0);
  ASSERT_EQ(plan("lower --model model.yaml --cluster gpus.yaml --strategy strategy.yaml "
                 "--seq-len 64 --out-dir gpus")
                .code,
            0);
  const std::string for_gpus = refused("gpus/schedule.json");
  EXPECT_TRUE(says(for_gpus, " as host memory; --backend cuda trains on GPUs) needs ")) << for_gpus;
}

TEST_F(Machine, NumaIsAutomaticOrOff) {
  const std::string train = "train plan/schedule.json --data text.txt --steps 1 --json";
  for (const std::string& command : {train, std::string("check plan/schedule.json"),
                                     std::string("bench --quick --out c.yaml")}) {
    for (const char* choice : {"auto", "off"}) {
      EXPECT_EQ(run(fmt::format("{} --numa {}", command, choice)).code, 0) << command << choice;
    }
    const Outcome wrong = run(command + " --numa 1");
    EXPECT_EQ(wrong.code, 2) << command;
    EXPECT_TRUE(says(wrong.err, "--numa")) << wrong.err;
  }
  // Threads of one process on a CPU have no node of their own.
  EXPECT_TRUE(says(run(train).out, "\"numa\":[]"));
}

// A failed start leaves no new file.
TEST_F(Machine, WithoutAGpuNothingBegins) {
  const Outcome device = run("device");
  if (device.code == 0) GTEST_SKIP() << "there is a GPU: " << device.out;
#ifdef FPDT_WITH_CUDA
  const std::vector<std::string_view> answers{"no NVIDIA driver", "no GPU"};
#else
  const std::vector<std::string_view> answers{"this fpdt-run was built without CUDA ("};
  EXPECT_TRUE(says(device.err, "see docs/gpu.md")) << device.err;
#endif
  for (const char* command :
       {"device", "device --json", "check plan/schedule.json --backend cuda",
        "bench --backend cuda --quick --out out.yaml",
        "bench --backend cuda --deterministic --quick --json --out out.yaml",
        "train plan/schedule.json --data text.txt --steps 1 --backend cuda --device 0 --log log "
        "--save model --json"}) {
    const Outcome result = run(command);
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_EQ(result.out, "") << command;
    EXPECT_TRUE(std::any_of(answers.begin(), answers.end(),
                            [&](std::string_view answer) { return says(result.err, answer); }))
        << command << ": " << result.err;
  }
  for (const char* file : {"out.yaml", "log", "model"}) EXPECT_FALSE(exists(file)) << file;
}

}  // namespace
}  // namespace fpdt::test
