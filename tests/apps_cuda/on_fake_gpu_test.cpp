// fpdt-run on a GPU, from flags to exit code, on a machine without one. The host provides the
// runtime (tests/cuda/fake_runtime.h), and kernels are emulated. Times mean nothing.
#include <filesystem>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/cluster_file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

class OnFakeGpu : public CommandLine {
 protected:
  // Lowers what the GPU's kernels support, heads of 8 stored as bf16, into folder `plan`.
  void lower(std::string_view outside, std::int64_t ranks = 2) const {
    write("model.yaml", R"(name: tiny
family: llama
layers: 2
hidden: 16
heads: 4
kv_heads: 2
head_dim: 8
feed_forward: 24
vocabulary: 256
norm: rms
activation: swiglu
rotary: {fraction: 1}
parameters: 13648
source: made for this test
)");
    write("two.yaml", fmt::format(R"(name: two
nodes: 1
devices_per_node: {}
device_memory: 8GiB
host_memory: 1GiB
row_multiple: 8
outside: {{{}}}
host_outside: {{}}
source: made for this test
)",
                                  ranks, outside));
    write("bf16.yaml", "storage: bf16\ntiles: {chunk_tokens: 32}\n");
    const Outcome planned = plan(
        "lower --model model.yaml --cluster two.yaml --strategy bf16.yaml --seq-len 64 "
        "--out-dir plan");
    ASSERT_EQ(planned.code, 0) << planned.err;
  }
};
constexpr std::string_view kTrain = "train plan/schedule.json --data text.txt --backend cuda";

TEST_F(OnFakeGpu, SaysWhatItIs) {
  const Outcome words = run("device");
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_TRUE(says(words.out, "GPU 0: a GPU of the tests, compute capability 9.0")) << words.out;
  EXPECT_TRUE(says(words.out, "memory: 4.00 GiB")) << words.out;
  const auto json = nlohmann::json::parse(run("device --json").out);
  EXPECT_EQ(json.at("gpu").at("memory_bytes"), std::int64_t{4} << 30);
  EXPECT_TRUE(json.at("holders").is_array());
  EXPECT_TRUE(json.at("cudnn_device_properties").is_object());
  EXPECT_EQ(run("device --device 1").code, 2);
}

// cuDNN is loaded when a tile needs it: the machine is described, measured and used without it.
TEST_F(OnFakeGpu, NeedsNoCudnn) {
  const std::string without = "WITHOUT_CUDNN=1 $RUN";
  const Outcome words = shell(without + " device");
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_TRUE(says(words.out, "no cuDNN\nonly the built-in attention kernels: cuDNN could not be"))
      << words.out;
  const auto json = nlohmann::json::parse(shell(without + " device --json").out);
  EXPECT_TRUE(json.at("gpu").at("cudnn").is_null());
  EXPECT_TRUE(json.at("cudnn_device_properties").is_null());
  lower("");
  EXPECT_EQ(shell(fmt::format("{} check plan/schedule.json --backend cuda", without)).code, 0);
  const Outcome bench = shell(without + " bench --backend cuda --quick --out gpu.yaml");
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_TRUE(says(bench.err, "measuring the built-in attention kernels: cuDNN")) << bench.err;
  EXPECT_EQ(load_cluster(path("gpu.yaml")).attention, AttentionKernels::own);
}

TEST_F(OnFakeGpu, AgreesWithTheReference) {
  lower("");
  for (const char* flags : {"", " --deterministic"}) {
    const Outcome result = run(fmt::format("check plan/schedule.json --backend cuda{}", flags));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
  }
}

TEST_F(OnFakeGpu, RefusesWhatItsKernelsDoNotServe) {
  const Outcome result = run(fmt::format("{} --steps 1 --log log", kTrain));  // heads of 4, f32
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "storage: bf16")) << result.err;
  const Outcome bench = run("bench --backend cuda --quick --storage f32 --out gpu.yaml");
  EXPECT_EQ(bench.code, 2);
  EXPECT_TRUE(says(bench.err, "attention tiles of a GPU are bf16")) << bench.err;
  EXPECT_FALSE(exists("gpu.yaml"));
}

// Both ranks share one context; each has its own workspace.
TEST_F(OnFakeGpu, ProcessesNeedALauncher) {
  lower("context: 1KiB, workspace: 48MiB");
  const std::string train = fmt::format("$RUN {} --steps 1 --communicator nccl", kTrain);
  const std::string torchrun = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost";
  for (const auto& [variables, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "RANK is not set: --communicator nccl needs a launcher"},
           {"RANK=2 WORLD_SIZE=2", "RANK: expected a number from 0 to 1, found \"2\""},
           {"RANK=1", "WORLD_SIZE is not set"},
           {torchrun, "LOCAL_WORLD_SIZE is not set"},
           {torchrun + " LOCAL_WORLD_SIZE=2", "MASTER_PORT is not set"},
           {torchrun + " LOCAL_WORLD_SIZE=2 MASTER_PORT=x", "1 to 65534, found \"x\""}}) {
    const Outcome refused = shell(fmt::format("{} {}", variables, train));
    EXPECT_EQ(refused.code, 2) << variables << refused.err;
    EXPECT_TRUE(says(refused.err, message)) << variables << refused.err;
  }
}

TEST_F(OnFakeGpu, HoldsTheDriversCountAgainstThePrediction) {
  lower("context: 1KiB, workspace: 48MiB");
  const Outcome table = run(fmt::format("{} --steps 2", kTrain));
  EXPECT_EQ(table.code, 0) << table.out << table.err;
  EXPECT_TRUE(says(table.out, "1.05 KiB of it unused")) << table.out;
  EXPECT_TRUE(says(table.out, "device memory taken after warm-up: 0 B")) << table.out;
  const Outcome solo = run(fmt::format("{} --steps 2 --communicator solo --rank 1 --json", kTrain));
  EXPECT_EQ(solo.code, 0) << solo.err;
  const auto memory = nlohmann::json::parse(solo.out).at("memory");
  // The context, the workspace, and 8 bytes for each pinned page.
  const auto pinned = memory.at("host_pinned").at("arena").get<std::int64_t>();
  ASSERT_GT(pinned, 0);
  EXPECT_EQ(memory.at("driver").at("outside"), (std::int64_t{48} << 20) + 1024 + pinned / 4096 * 8);
  EXPECT_EQ(memory.at("driver").at("arenas"), memory.at("device").at("arena"));
  const auto& device = memory.at("device");
  EXPECT_TRUE(device.at("resident").is_null());
  const auto count = [&](const char* key) {
    return device.at("untouched").at(key).get<std::int64_t>();
  };
  EXPECT_EQ(device.at("touched").get<std::int64_t>() + count("scratch") + count("between"),
            device.at("arena"));
  EXPECT_EQ(device.at("difference"), "");
  // Pinned memory is host memory, whose pages the system counts.
  EXPECT_EQ(memory.at("host_pinned").at("resident"), memory.at("host_pinned").at("arena"));

  lower("context: 1KiB, workspace: 47MiB");
  // Estimates of libraries are reported, and fail nothing.
  const Outcome over = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(over.code, 0);
  EXPECT_TRUE(says(over.out, "2.00 MiB over the prediction, an estimate that")) << over.out;
  lower("context: 1GiB, workspace: 48MiB");
  const Outcome under = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(under.code, 0);
  EXPECT_TRUE(says(under.out, "1.00 GiB under the prediction")) << under.out;
}

// The verdict comes last: numbers, log and weights are already written.
TEST_F(OnFakeGpu, ADeviationHidesNoResult) {
  lower("context: 1KiB, workspace: 48MiB");
  const Outcome grown =
      shell(fmt::format("GPUS='1 leaks' $RUN {} --steps 2 --log log --save saved --json", kTrain));
  EXPECT_EQ(grown.code, 4);
  EXPECT_TRUE(says(grown.err, "of device memory was taken after warm-up")) << grown.err;
  const auto result = nlohmann::json::parse(grown.out);
  EXPECT_EQ(result.at("steps"), 2);
  EXPECT_EQ(result.at("losses").size(), 2U);
  EXPECT_GT(result.at("seconds"), 0);
  EXPECT_EQ(result.at("memory").at("deviations").size(), 1U);
  EXPECT_TRUE(exists("log"));
  EXPECT_TRUE(exists("saved/model.safetensors"));
}

TEST_F(OnFakeGpu, ACutRunThatIsResumedEndsInTheSameBits) {
  lower("");
  const std::string train = fmt::format("{} --deterministic", kTrain);
  EXPECT_EQ(run(fmt::format("{} --steps 3 --save whole", train)).code, 0);
  EXPECT_EQ(run(fmt::format("{} --steps 1 --save part", train)).code, 0);
  EXPECT_EQ(run(fmt::format("{} --steps 3 --resume part --save part", train)).code, 0);
  for (const char* file : {"model.safetensors", "fpdt_state.safetensors"}) {
    EXPECT_EQ(contents(fmt::format("whole/{}", file)), contents(fmt::format("part/{}", file)))
        << file;
  }
}

TEST_F(OnFakeGpu, ListsAllGpus) {
  const Outcome words = shell("GPUS=2 $RUN device");
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_TRUE(says(words.out, "GPU 0: a GPU of the tests")) << words.out;
  EXPECT_TRUE(says(words.out, "\n\nGPU 1: a GPU of the tests")) << words.out;
  const auto all = nlohmann::json::parse(shell("GPUS=2 $RUN device --json").out).at("gpus");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].at("gpu").at("index"), 1);
  const auto one = nlohmann::json::parse(shell("GPUS=2 $RUN device --device 1 --json").out);
  EXPECT_EQ(one.at("gpu").at("index"), 1);
}

// Without a launcher: each rank takes a GPU, and the bits are those of ranks that share one.
TEST_F(OnFakeGpu, RanksHaveAGpuEach) {
  lower("context: 1KiB, workspace: 48MiB");
  const std::string train = fmt::format("$RUN {} --deterministic --steps 2", kTrain);
  const Outcome apart = shell(fmt::format("GPUS=3 {} --save apart --json", train));
  ASSERT_EQ(apart.code, 0) << apart.out << apart.err;
  EXPECT_FALSE(says(apart.err, "ranks on")) << apart.err;
  const auto memory = nlohmann::json::parse(apart.out).at("memory");
  const auto& gpus = memory.at("driver").at("gpus");
  ASSERT_EQ(gpus.size(), 2U);
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    EXPECT_EQ(gpus[gpu].at("gpu"), gpu);
    EXPECT_EQ(gpus[gpu].at("arenas"), memory.at("device").at("arena"));
    // Beside the context, which this GPU has none of, page tables of what both ranks pin.
    const auto pinned = 2 * memory.at("host_pinned").at("arena").get<std::int64_t>();
    EXPECT_EQ(gpus[gpu].at("predicted").get<std::int64_t>() - 1024 - pinned / 4096 * 8,
              gpus[gpu].at("highest"));
  }
  const Outcome shared = shell(fmt::format("GPUS=3 {} --save shared --device 1", train));
  ASSERT_EQ(shared.code, 0) << shared.out << shared.err;
  EXPECT_TRUE(says(shared.err, "2 ranks on 1 GPU: 2 on GPU 1\n")) << shared.err;
  for (const char* file : {"model.safetensors", "fpdt_state.safetensors"}) {
    EXPECT_EQ(contents(fmt::format("apart/{}", file)), contents(fmt::format("shared/{}", file)))
        << file;
  }
}

// GPU 0 is near NUMA node 0, which every machine has that tells of nodes.
TEST_F(OnFakeGpu, RanksStayNearTheirGpus) {
  lower("");
  const std::string train = fmt::format("GPUS=2 $RUN {} --steps 1 --json", kTrain);
  const auto numa = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out).at("numa");
  };
  const auto homes = numa(shell(train));
  EXPECT_NE(homes.empty(), std::filesystem::exists("/sys/devices/system/node/online"));
  for (const auto& home : homes) EXPECT_EQ(home.at("node"), home.at("rank"));
  EXPECT_TRUE(numa(shell(train + " --numa off")).empty());
}

TEST_F(OnFakeGpu, RanksAreDealtOutInOrder) {
  lower("", 4);
  for (const auto& [flags, answer] :
       {std::pair("", "4 ranks on 3 GPUs: 2 on GPU 0, 1 on GPU 1, 1 on GPU 2\n"),
        std::pair(" --device 2,0", "4 ranks on 2 GPUs: 2 on GPU 2, 2 on GPU 0\n")}) {
    const Outcome result = shell(fmt::format("GPUS=3 $RUN {} --steps 1{}", kTrain, flags));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(says(result.err, answer)) << result.err;
    EXPECT_TRUE(says(result.out, "GPU 2: device memory in use, by the driver")) << result.out;
  }
}

TEST_F(OnFakeGpu, RefusesGpusThatDoNotFitTogether) {
  lower("");
  for (const auto& [gpus, flags, answer] :
       {std::tuple("2", "--device 0,2",
                   "there is no GPU 2; 2 were found, counted from 0: give --device 0,1, or"),
        std::tuple("1", "--device 1", "there is no GPU 1; one was found"),
        std::tuple("2 apart", "", "GPU 0 cannot read the memory of GPU 1"),
        std::tuple("2 unlike", "", "GPUs of one model; give --device 0\n")}) {
    const Outcome result =
        shell(fmt::format("GPUS='{}' $RUN {} --steps 1 --log log {}", gpus, kTrain, flags));
    EXPECT_EQ(result.code, 2) << gpus;
    EXPECT_TRUE(says(result.err, answer)) << result.err;
    EXPECT_FALSE(exists("log")) << gpus;
  }
  // The GPU that does not fit is not used.
  const Outcome others = shell(fmt::format("GPUS='3 apart' $RUN {} --steps 1", kTrain));
  EXPECT_EQ(others.code, 0) << others.err;
}

// The file of a bench plans a step and times it.
TEST_F(OnFakeGpu, IsMeasuredAndPlannedFor) {
  const Outcome bench = run("bench --backend cuda --quick --out gpu.yaml --peak-flops 1e12");
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_TRUE(says(bench.out, "128 rows, D 128, library, diagonal")) << bench.out;
  EXPECT_TRUE(says(bench.out, "workspace 48.0 MiB")) << bench.out;
  const ClusterSpec cluster = load_cluster(path("gpu.yaml"));
  EXPECT_EQ(cluster.name, "gpu-local");
  EXPECT_EQ(cluster.attention, AttentionKernels::cudnn);
  EXPECT_EQ(cluster.row_multiple, 128);
  EXPECT_EQ(cluster.device_memory, Bytes{std::int64_t{4} << 30});
  EXPECT_TRUE(says(cluster.source, "bench --backend cuda --quick: a GPU of the tests, CUDA"))
      << cluster.source;
  write("model.yaml", R"(name: narrow
family: llama
layers: 1
hidden: 64
heads: 1
head_dim: 64
feed_forward: 32
vocabulary: 256
norm: rms
activation: swiglu
rotary: {fraction: 1}
parameters: 55488
source: made for this test
)");
  write("chunks.yaml", "storage: bf16\ntiles: {chunk_tokens: 128}\n");
  const Outcome planned = plan(
      "lower --model model.yaml --cluster gpu.yaml --strategy chunks.yaml --seq-len 256 "
      "--out-dir plan");
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Outcome step =
      run(fmt::format("{} --steps 2 --machine gpu.yaml --draw step.json --json", kTrain));
  EXPECT_EQ(step.code, 0) << step.err;
  // Lists the algorithm of each product, except when the same bits are promised.
  const auto products = nlohmann::json::parse(step.out).at("products");
  ASSERT_FALSE(products.empty());
  EXPECT_GE(products[0].at("of"), 1);
  const Outcome same = run(fmt::format("{} --steps 1 --deterministic --json", kTrain));
  EXPECT_TRUE(nlohmann::json::parse(same.out).at("products").empty()) << same.out;
  const auto time = nlohmann::json::parse(step.out).at("time");
  EXPECT_GT(time.at("predicted_seconds"), 0);
  EXPECT_GT(time.at("measured_seconds"), 0);
  EXPECT_TRUE(exists("step.json"));
}

}  // namespace
}  // namespace fpdt::test
