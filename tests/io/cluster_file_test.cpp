// Every cluster of configs/clusters loads, and contradictions do not.
#include "fpdt/io/cluster_file.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "scratch.h"

namespace fpdt::test {
namespace {

TEST(ClusterFile, EveryConfigLoadsUnderItsOwnName) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/clusters"))) {
    const ClusterSpec cluster = load_cluster(entry.path().string());
    EXPECT_EQ(cluster.name, entry.path().stem().string());
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(ClusterFile, ReadsEveryField) {
  const ClusterSpec cluster = parse_cluster(
      "name: n\nnodes: 3\ndevices_per_node: 5\ndevice_memory: 1.5GiB\nhost_memory: 7 MiB\n"
      "row_multiple: 128\nsource: s\n",
      "c.yaml");
  ClusterSpec expected;
  expected.name = std::string("n");
  expected.nodes = 3;
  expected.devices_per_node = 5;
  expected.device_memory = Bytes{3 << 29};
  expected.host_memory = Bytes{7 << 20};
  expected.row_multiple = 128;
  expected.source = std::string("s");
  EXPECT_EQ(cluster, expected);
}

TEST(ClusterFile, RefusesSizesThatCannotBe) {
  for (const char* nodes : {"0", "-1", "1000000000000"}) {
    const std::string text =
        std::string("name: n\nnodes: ") + nodes +
        "\ndevices_per_node: 5\ndevice_memory: 1GiB\nhost_memory: 7MiB\nsource: s\n";
    EXPECT_NE(input_error([&] { static_cast<void>(parse_cluster(text, "c.yaml")); }), "") << nodes;
  }
}

}  // namespace
}  // namespace fpdt::test
