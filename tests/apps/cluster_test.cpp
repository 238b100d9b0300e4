// `cluster new`: the text of one cluster becomes that of another.
#include "fpdt/io/cluster_file.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

using Cluster = CommandLine;

TEST_F(Cluster, KeepsAllThatIsNotAskedFor) {
  const Outcome made = plan(
      "cluster new --like a100-80g-x4 --devices-per-node 8 --nodes 3 --host-memory 512GiB --out "
      "mine.yaml");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out, "");
  const std::string base_path = std::string(FPDT_SOURCE_DIR) + "/configs/clusters/a100-80g-x4.yaml";
  ClusterSpec expected = load_cluster(base_path);
  expected.name = "mine";
  expected.nodes = 3;
  expected.devices_per_node = 8;
  // Half of the memory of a node: half of its page descriptors (16 GiB) and of its page tables.
  constexpr std::int64_t kGibi = 1 << 30;
  expected.host_memory = Bytes{512 * kGibi};
  expected.host_outside.system = expected.host_outside.system - Bytes{8 * kGibi};
  expected.host_outside.page_tables = Bytes{7 * kGibi};
  expected.source = "made from a100-80g-x4; " + expected.source;
  const std::string text = contents("mine.yaml");
  EXPECT_EQ(parse_cluster(text, "mine.yaml"), expected);
  EXPECT_TRUE(says(made.err,
                   "note: from a100-80g-x4: 312 TFLOP/s and all other rates (`link` is that of 4 "
                   "devices); 4.99 GiB outside the arena of a device and "))
      << "what may differ on another card";
  EXPECT_TRUE(says(text, "\nhost_memory: 512GiB  # 1TiB in a100-80g-x4\n"));
  EXPECT_TRUE(says(text, "\n  # Pinned memory over PCIe 4 x16: 24.8e9 alone")) << "a comment";
  const Outcome asked = plan("search --model model.yaml --cluster mine.yaml --seq-len 24K");
  EXPECT_EQ(asked.code, 0) << asked.err;
}

TEST_F(Cluster, PrintsWhereNoFileIsNamed) {
  const Outcome made = plan("cluster new --like timed.yaml --numa-nodes 2 --device-memory 2GiB");
  EXPECT_EQ(made.code, 0) << made.err;
  const ClusterSpec cluster = parse_cluster(made.out, "printed");
  EXPECT_EQ(cluster.name, "my-timed");
  EXPECT_EQ(cluster.numa_nodes, 2) << "a key that timed.yaml lacks";
  EXPECT_EQ(cluster.device_memory, Bytes{std::int64_t{2} << 30});
  EXPECT_TRUE(says(plan("cluster new --like h200-141g-x1 --devices-per-node 2").err,
                   "missing: rates.link (what a device sends to the others of its node)\n"));
  // A machine without rates has none for its devices either.
  EXPECT_TRUE(says(plan("cluster new --like cluster.yaml").err, "missing: rates.matmul, "));
}

// A name is a text, whatever YAML would take it for.
TEST_F(Cluster, TakesAnyName) {
  for (const std::string name : {"x # y", "null", "'q", "a: b", "12", "-"}) {
    ASSERT_EQ(
        plan("cluster new --like timed.yaml --out named.yaml --overwrite --name \"" + name + "\"")
            .code,
        0)
        << name;
    EXPECT_EQ(load_cluster(path("named.yaml")).name, name);
  }
}

TEST_F(Cluster, ReplacesNothingUnasked) {
  write("mine.yaml", "precious");
  const std::string make = "cluster new --like a100-80g-x4 --out mine.yaml ";
  const Outcome refused = plan(make);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "fpdt-plan: --out mine.yaml: exists; --overwrite replaces it\n");
  EXPECT_EQ(plan(make + "--overwrite --devices-per-node 5000").code, 2);
  EXPECT_EQ(contents("mine.yaml"), "precious") << "after an error";
  EXPECT_EQ(plan(make + "--overwrite").code, 0);
  EXPECT_TRUE(says(contents("mine.yaml"), "\nname: mine\n"));
}

TEST_F(Cluster, RefusesWhatItDoesNotKnow) {
  const auto error = [&](std::string_view flags) {
    const Outcome result = plan("cluster " + std::string(flags));
    EXPECT_EQ(result.code, 2) << flags;
    return result.err;
  };
  EXPECT_TRUE(says(error("new --like a100-80g-x5"), "did you mean a100-80g-x2?"));
  EXPECT_TRUE(says(error("new --like a100-80g-x4 --host-memory 512"), "expected a size such as"));
  EXPECT_TRUE(says(error("new --like a100-80g-x4 --devices-per-node 9223372036854775807"),
                   "of 1 to 1024 devices"));
  EXPECT_TRUE(says(error("new --like a100-80g-x4 --name \"$(printf 'x\\nnuma_nodes: 2')\""),
                   "--name: expected a text of one line"));
  EXPECT_TRUE(says(error("old --like a100-80g-x4"), "ACTION"));
  EXPECT_TRUE(says(error("new --like a100-80g-x4 --hots-memory 1GiB"), "--host-memory"));
}

}  // namespace
}  // namespace fpdt::test
