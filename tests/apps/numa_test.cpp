// Ranks on the NUMA nodes of machines that are folders, and what is said about them.
#include "run/numa.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/comm/local.h"
#include "fpdt/runtime/threads.h"

#include "command_line.h"
#include "process_worlds.h"

namespace fpdt::test {
namespace {

constexpr Bytes kGibi{1 << 30};

RankHome home(std::int64_t rank, std::int32_t node, std::int64_t host = 0) {
  return {rank, host, 2, node, {true, true}, 100 * kGibi, false};
}

TEST(RankHomes, AreSaidInALine) {
  std::vector<RankHome> homes{home(0, 0), home(1, 0), home(2, 1), home(3, 1), home(4, 0)};
  EXPECT_EQ(homes_text(homes), "NUMA: ranks 0-1,4 on node 0, ranks 2-3 on node 1");
  for (RankHome& one : homes) one.pinned.memory = false;
  EXPECT_EQ(homes_text(homes), "NUMA: ranks 0-1,4 on node 0, ranks 2-3 on node 1")
      << "pages follow the threads";
  homes[0].pinned = {false, true};
  for (RankHome& one : homes) one.pinned.memory = true;
  EXPECT_TRUE(says(homes_text(homes), "node 1; threads stay where the system puts them"));
  homes[2].pinned = {false, false};
  EXPECT_TRUE(says(homes_text(homes), "; the system pins neither all threads nor all memory"));
}

TEST(RankHomes, OfSeveralHostsAreThoseOfTheFirst) {
  EXPECT_EQ(homes_text(std::vector{home(0, 0), home(1, 1), home(2, 0, 1), home(3, 1, 1)}),
            "NUMA nodes of the first host: rank 0 on node 0, rank 1 on node 1");
  // Launchers may deal ranks out to the hosts in turn.
  EXPECT_EQ(homes_text(std::vector{home(0, 0), home(1, 0, 1), home(2, 1)}),
            "NUMA nodes of the first host: rank 0 on node 0, rank 2 on node 1");
}

TEST(RankHomes, AreNotWorthALineOnOneNode) {
  std::vector<RankHome> homes{home(0, 0), home(1, -1)};
  homes[0].nodes = 1;
  EXPECT_EQ(homes_text(homes), "");
  EXPECT_EQ(homes_text({}), "");
  EXPECT_TRUE(warnings(homes, 1000 * kGibi).empty()) << "the whole machine is checked elsewhere";
  const Json list = json(homes);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["rank"], 0);
  EXPECT_EQ(list[0]["free_bytes"], (100 * kGibi).value);
}

// The ranks of a node share its memory.
TEST(RankHomes, WarnOfNodesThatAreTooSmall) {
  std::vector<RankHome> homes{home(0, 0), home(1, 0), home(2, 1)};
  EXPECT_TRUE(warnings(homes, 50 * kGibi).empty());
  const std::vector<std::string> found = warnings(homes, 50 * kGibi + Bytes{1});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0],
            "NUMA node 0: ranks 0-1 take 100 GiB of host memory, and 100 GiB are free there: the "
            "rest lies on other nodes, which is slower");
  homes.push_back(home(3, 0, 1));
  EXPECT_EQ(warnings(homes, 50 * kGibi).size(), 0U) << "another host has its own node 0";
  const std::vector<std::string> everywhere = warnings(homes, 101 * kGibi);
  ASSERT_EQ(everywhere.size(), 3U);
  EXPECT_TRUE(says(everywhere[1], "host 0, NUMA node 1: rank 2 takes 101 GiB"));
  EXPECT_TRUE(says(everywhere[2], "host 1, NUMA node 0: rank 3 takes 101 GiB"));
}

TEST(RankHomes, WarnOfProcessesOnOneCore) {
  std::vector<RankHome> homes{home(0, 0), home(1, -1)};
  homes[1].one_core = true;
  const std::vector<std::string> found = warnings(homes, Bytes{1});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(says(found[0], "1 of 2 processes may use a single core"));
  EXPECT_TRUE(says(found[0], "--bind-to none"));
}

// A machine of two nodes in a folder. Its CPUs are the first and the last of this machine's.
class Settle : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "fpdt_settle_" + std::to_string(getpid());
    const std::vector<std::int32_t> cpus = allowed_cpus();
    ASSERT_FALSE(cpus.empty());
    write("online", "0-1");
    for (const auto& [node, cpu] : {std::pair(0, cpus.front()), std::pair(1, cpus.back())}) {
      write(fmt::format("node{}/cpulist", node), std::to_string(cpu));
      write(fmt::format("node{}/meminfo", node),
            fmt::format("Node {0} MemTotal: 16 kB\nNode {0} MemFree: {1} kB\n", node, 8 - node));
      cpus_.push_back(cpu);
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    const std::string path = root_ + "/sys/devices/system/node/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::string root_;
  std::vector<std::int32_t> cpus_;  // by node
};

TEST_F(Settle, SpreadsProcessesAndPinsThem) {
  std::vector<std::vector<RankHome>> homes(4);
  std::vector<std::vector<std::int32_t>> cpus(4);
  for (const auto& error : run_processes(4, [&](World&world, const Connect&) {
         const auto process = static_cast<std::size_t>(world.place().process);
         homes[process] = settle(world, {}, root_);
         start_thread([&] { cpus[process] = allowed_cpus(); }).join();
       })) {
    EXPECT_FALSE(error) << error->what();
  }
  ASSERT_EQ(homes[0].size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const RankHome& one = homes[0][rank];
    EXPECT_EQ(homes[rank], homes[0]) << "all processes know the same";
    EXPECT_EQ(one.rank, static_cast<std::int64_t>(rank));
    EXPECT_EQ(one.node, rank < 2 ? 0 : 1);
    EXPECT_EQ(one.nodes, 2);
    EXPECT_TRUE(one.pinned.threads);
    EXPECT_EQ(one.free, Bytes{(rank < 2 ? 8 : 7) * 1024});
    EXPECT_EQ(cpus[rank], std::vector{cpus_[rank < 2 ? 0 : 1]});
  }
  EXPECT_EQ(warnings(homes[0], Bytes{4 * 1024}).size(), 1U) << "of node 1 only";
}

// The rank threads pin themselves; this thread keeps all CPUs.
TEST_F(Settle, FindsTheNodesOfGpus) {
  LocalWorld world(3);
  const std::vector<std::int32_t> before = allowed_cpus();
  const std::vector<RankHome> homes = settle(world, std::vector{1, 0, -1}, root_);
  ASSERT_EQ(homes.size(), 3U);
  EXPECT_EQ(homes[0].node, 1);
  EXPECT_TRUE(homes[0].pinned.threads);
  EXPECT_EQ(homes[1].node, 0);
  EXPECT_EQ(homes[2].node, -1);
  EXPECT_EQ(homes[2].pinned, Pinned());
  EXPECT_EQ(allowed_cpus(), before);
}

TEST_F(Settle, LeavesThreadsOnACpuWhereTheyAre) {
  LocalWorld world(2);
  for (const RankHome& one : settle(world, {}, root_)) EXPECT_EQ(one.node, -1);
}

TEST_F(Settle, ChangesNothingWhereNodesAreUnknown) {
  LocalWorld world(1);
  const std::vector<RankHome> homes = settle(world, std::vector{0}, root_ + "/nothing");
  ASSERT_EQ(homes.size(), 1U);
  EXPECT_EQ(homes[0].nodes, 0);
  EXPECT_EQ(homes[0].node, -1);
  EXPECT_EQ(homes_text(homes), "");
}

}  // namespace
}  // namespace fpdt::test
