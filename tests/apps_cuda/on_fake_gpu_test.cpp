// fpdt-run on a GPU, from flags to exit code, on a machine without one. The host provides the
// runtime (tests/cuda/fake_runtime.h), and kernels are emulated. Times mean nothing.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/cluster_file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

class OnFakeGpu : public CommandLine {
 protected:
  // Lowers what the GPU's kernels support, heads of 8 stored as bf16, into folder `plan`.
  void lower(std::string_view outside) const {
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
devices_per_node: 2
device_memory: 8GiB
host_memory: 1GiB
row_multiple: 8
outside: {{{}}}
source: made for this test
)",
                                  outside));
    write("bf16.yaml", "storage: bf16\nfpdt: {chunk_tokens: 32}\n");
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
TEST_F(OnFakeGpu, HoldsTheDriversCountAgainstThePrediction) {
  lower("context: 1KiB, workspace: 48MiB");
  const Outcome table = run(fmt::format("{} --steps 2", kTrain));
  EXPECT_EQ(table.code, 0) << table.out << table.err;
  EXPECT_TRUE(says(table.out, "1.00 KiB of it unused")) << table.out;
  EXPECT_TRUE(says(table.out, "device memory taken after warm-up: 0 B")) << table.out;
  const Outcome solo = run(fmt::format("{} --steps 2 --communicator solo --rank 1 --json", kTrain));
  EXPECT_EQ(solo.code, 0) << solo.err;
  const auto memory = nlohmann::json::parse(solo.out).at("memory");
  EXPECT_EQ(memory.at("driver").at("outside"), (std::int64_t{48} << 20) + 1024);
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
  const Outcome over = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(over.code, 4);
  EXPECT_TRUE(says(over.out, "2.00 MiB over the prediction")) << over.out;
  lower("context: 1GiB, workspace: 48MiB");
  const Outcome under = run(fmt::format("{} --steps 1", kTrain));
  EXPECT_EQ(under.code, 4);
  EXPECT_TRUE(says(under.out, "1.00 GiB under the prediction")) << under.out;
}

// The verdict comes last: numbers, log and weights are already written.
TEST_F(OnFakeGpu, ADeviationHidesNoResult) {
  lower("context: 1KiB, workspace: 47MiB");
  const Outcome over = run(fmt::format("{} --steps 2 --log log --save saved --json", kTrain));
  EXPECT_EQ(over.code, 4);
  EXPECT_TRUE(says(over.err, "disagree: the driver's total is 2.00 MiB over")) << over.err;
  const auto result = nlohmann::json::parse(over.out);
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
  write("chunks.yaml", "storage: bf16\nfpdt: {chunk_tokens: 128}\n");
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
