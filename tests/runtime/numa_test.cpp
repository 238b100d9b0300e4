// Machines with several NUMA nodes in a folder, and what this machine's kernel grants or refuses.
#include "fpdt/runtime/numa.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/runtime/arena.h"
#include "fpdt/runtime/threads.h"

namespace fpdt {
namespace {

using Numbers = std::vector<std::int32_t>;

constexpr Bytes kMebi{1 << 20};

TEST(KernelList, IsNumbersAndRanges) {
  EXPECT_EQ(parse_numbers("", 64), Numbers());
  EXPECT_EQ(parse_numbers("0", 64), Numbers({0}));
  EXPECT_EQ(parse_numbers("0-3,8-9,63", 64), Numbers({0, 1, 2, 3, 8, 9, 63}));
  EXPECT_EQ(parse_numbers("1,3,5", 64), Numbers({1, 3, 5}));
}

TEST(KernelList, AnythingElseIsNothing) {
  for (const char* list : {",",
                           "0,",
                           ",0",
                           "0,,1",
                           "-1",
                           "0-",
                           "-",
                           "3-1",
                           "1-1",
                           "2,1",
                           "0-3,3",
                           "0-64",
                           "64",
                           "+1",
                           " 0",
                           "0 ",
                           "0\n",
                           "0x3",
                           "a",
                           "0-3:1/2",
                           "0--1",
                           "99999999999999999999",
                           "0-99999999999999999999",
                           "\xff"}) {
    EXPECT_EQ(parse_numbers(list, 64), std::nullopt) << list;
  }
}

// A folder that stands for /proc and /sys.
class NumaMachine : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = testing::TempDir() + "fpdt_numa_" + info->name() + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }
  void online(const std::string& nodes) const {
    write("/sys/devices/system/node/online", nodes + "\n");
  }
  // A node of which 1 MiB is free, 2 MiB hold page cache, and 3 MiB what must stay.
  void node(std::int32_t number, const std::string& cpus) const {
    const std::string folder = fmt::format("/sys/devices/system/node/node{}/", number);
    write(folder + "cpulist", cpus + "\n");
    std::string text = "\n";
    for (const auto& [key, kibi] :
         {std::pair("MemTotal", 6144), std::pair("MemFree", 1024), std::pair("MemUsed", 5120),
          std::pair("Active(file)", 512), std::pair("Inactive(file)", 512),
          std::pair("SReclaimable", 1024), std::pair("HugePages_Free", 0)}) {
      text += fmt::format("Node {} {}:{:>12} kB\n", number, key, kibi);
    }
    write(folder + "meminfo", text);
  }
  [[nodiscard]] std::vector<NumaNode> nodes() const { return numa_nodes(root_); }
  std::string root_;
};

TEST_F(NumaMachine, IsReadNodeByNode) {
  online("0-1");
  node(0, "0-1,4-5");
  node(1, "2-3,6-7");
  const std::vector<NumaNode> found = nodes();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].cpus, Numbers({0, 1, 4, 5}));
  EXPECT_EQ(found[1].number, 1);
  EXPECT_EQ(found[1].cpus, Numbers({2, 3, 6, 7}));
  EXPECT_EQ(found[1].memory, 6 * kMebi);
  EXPECT_EQ(found[1].free, kMebi);
  EXPECT_EQ(found[1].cache, 2 * kMebi);
  EXPECT_FALSE(found[1].forbidden);
}

// Numbers have gaps. A node may have no CPU, no memory, or be offline and stay in the folder.
TEST_F(NumaMachine, MayHaveOddNodes) {
  online("0,2,8");
  node(0, "0-3");
  node(1, "4-7");
  node(2, "");
  write("/sys/devices/system/node/node8/cpulist", "8-11\n");
  const std::vector<NumaNode> found = nodes();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].number, 2);
  EXPECT_TRUE(found[1].cpus.empty());
  EXPECT_EQ(found[1].memory, 6 * kMebi);
  EXPECT_EQ(found[2].number, 8);
  EXPECT_EQ(found[2].memory, Bytes{0});
  // Four processes go where there are both.
  const Numbers all{0, 1, 2, 3, 8, 9, 10, 11};
  for (std::int64_t local = 0; local < 4; ++local) {
    EXPECT_EQ(home_node(found, all, local, 4), &found[0]) << local;
  }
}

TEST_F(NumaMachine, IsUnknownWhereTheFilesAreMissingOrNonsense) {
  EXPECT_TRUE(nodes().empty());
  EXPECT_EQ(home_node({}, Numbers{0}, 0, 1), nullptr);
  EXPECT_FALSE(is_one_core({}, Numbers{0}, root_));
  for (const char* list : {"0-", "zero", "0-4294967295", "1,0"}) {
    online(list);
    EXPECT_TRUE(nodes().empty()) << list;
  }
  online("0");
  node(0, "0-999999999");
  EXPECT_TRUE(nodes().empty());
  node(0, "0");
  write("/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: lots kB\nNode 0 MemFree: -7 kB\nNode 0 Active(file):");
  ASSERT_EQ(nodes().size(), 1U);
  EXPECT_EQ(nodes()[0].memory, Bytes{0});
  EXPECT_EQ(nodes()[0].free, Bytes{0});
  EXPECT_EQ(nodes()[0].cache, Bytes{0});
}

// A container may have the memory of some nodes only. More than that cannot be had.
TEST_F(NumaMachine, LimitsMemoryToTheNodesOfItsCpuset) {
  online("0-2");
  for (const std::int32_t number : {0, 1, 2}) node(number, std::to_string(number));
  write("/proc/meminfo", "MemAvailable: 8192 kB\n");
  write("/proc/self/status", "Name:\ttest\nMems_allowed_list:\t0-2\n");
  EXPECT_EQ(memory_limit(root_).source, "MemAvailable");
  write("/proc/self/status", "Name:\ttest\nMems_allowed_list:\t0,2\n");
  EXPECT_TRUE(nodes()[1].forbidden);
  EXPECT_EQ(nodes()[1].memory, Bytes{0});
  EXPECT_EQ(memory_limit(root_).source, "cpuset.mems");
  EXPECT_EQ(memory_limit(root_).bytes, 6 * kMebi);
  // Another limit may be tighter.
  write("/proc/meminfo", "MemAvailable: 16 kB\n");
  EXPECT_EQ(memory_limit(root_).source, "MemAvailable");
  // A system that does not tell forbids nothing.
  write("/proc/self/status", "Name:\ttest\n");
  EXPECT_FALSE(nodes()[1].forbidden);
}

TEST_F(NumaMachine, SpreadsProcessesEvenlyAndNeighboursTogether) {
  const auto homes = [&](std::int64_t locals) {
    const std::vector<NumaNode> found = nodes();
    Numbers all(8);
    for (std::int32_t cpu = 0; cpu < 8; ++cpu) all[static_cast<std::size_t>(cpu)] = cpu;
    Numbers numbers;
    for (std::int64_t local = 0; local < locals; ++local) {
      const NumaNode* const home = home_node(found, all, local, locals);
      numbers.push_back(home == nullptr ? -1 : home->number);
    }
    return numbers;
  };
  online("0");
  node(0, "0-7");
  EXPECT_EQ(homes(2), Numbers({0, 0}));
  online("0-1");
  node(0, "0-3");
  node(1, "4-7");
  EXPECT_EQ(homes(1), Numbers({0}));
  EXPECT_EQ(homes(3), Numbers({0, 0, 1}));
  EXPECT_EQ(homes(4), Numbers({0, 0, 1, 1}));
  online("0-7");
  for (std::int32_t number = 0; number < 8; ++number) node(number, std::to_string(number));
  EXPECT_EQ(homes(4), Numbers({0, 2, 4, 6}));
  EXPECT_EQ(homes(8), Numbers({0, 1, 2, 3, 4, 5, 6, 7}));
  const Numbers twice = homes(16);
  for (const std::int32_t number : twice)
    EXPECT_EQ(std::count(twice.begin(), twice.end(), number), 2);
}

// A process that its launcher has bound stays where it is.
TEST_F(NumaMachine, LeavesBoundProcessesWhereTheyAre) {
  online("0-1");
  node(0, "0-3");
  node(1, "4-7");
  const std::vector<NumaNode> found = nodes();
  EXPECT_EQ(home_node(found, Numbers{5}, 0, 2), &found[1]);
  EXPECT_EQ(home_node(found, Numbers{4, 5, 6, 7}, 0, 2), &found[1]);
  EXPECT_EQ(home_node(found, Numbers{0, 1, 4, 5}, 0, 2), nullptr);
  EXPECT_EQ(home_node(found, Numbers{}, 0, 2), nullptr);
}

// mpirun binds one or two processes to a core each: to one CPU, or to all that share the core.
TEST_F(NumaMachine, TellsASingleCore) {
  online("0-1");
  node(0, "0-1,4-5");
  node(1, "2-3,6-7");
  for (std::int32_t cpu = 0; cpu < 8; ++cpu) {
    write(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
          fmt::format("{},{}\n", cpu % 4, cpu % 4 + 4));
  }
  const std::vector<NumaNode> found = nodes();
  EXPECT_TRUE(is_one_core(found, Numbers{1}, root_));
  EXPECT_TRUE(is_one_core(found, Numbers{1, 5}, root_));
  EXPECT_FALSE(is_one_core(found, Numbers{0, 1}, root_));
  EXPECT_FALSE(is_one_core(found, Numbers{0, 1, 2, 3, 4, 5, 6, 7}, root_));
  EXPECT_FALSE(is_one_core(found, Numbers{}, root_));
  // Where the system does not tell which CPUs share a core, one is one.
  std::filesystem::remove_all(root_ + "/sys/devices/system/cpu");
  EXPECT_TRUE(is_one_core(found, Numbers{1}, root_));
  EXPECT_FALSE(is_one_core(found, Numbers{1, 5}, root_));
  online("0");
  node(0, "1");
  EXPECT_FALSE(is_one_core(nodes(), Numbers{1}, root_)) << "the machine has no other";
}

// Runs on a thread of its own, because threads inherit what is pinned.
void apart(const std::function<void()>& work) { start_thread(work).join(); }

// The mode of the calling thread's memory policy, and its first 64 nodes as bits.
struct Policy {
  int mode = 0;
  std::uint64_t nodes = 0;
  bool operator==(const Policy&) const = default;
};
Policy policy() {
  Policy found;
  std::array<std::uint64_t, 16> nodes{};
  if (::syscall(SYS_get_mempolicy, &found.mode, nodes.data(), 64 * nodes.size() + 1, nullptr, 0) ==
      0) {
    found.nodes = nodes[0];
  }
  return found;
}

long set_policy(const Policy& policy) {
  return ::syscall(SYS_set_mempolicy, policy.mode, &policy.nodes, 65);
}

constexpr Policy kFirstPreferred{1, 1};
constexpr Policy kFirstInterleaved{3, 1};

// Whether this machine lets tests choose a policy; many containers do not.
bool grants_policies() {
  bool grants = false;
  apart([&] { grants = set_policy(kFirstPreferred) == 0 && policy() == kFirstPreferred; });
  return grants;
}

TEST(PinTo, HoldsForTheThreadAndThoseThatItStarts) {
  const Numbers before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  NumaNode node;
  node.cpus = {before.back(), before.back() + 1000};
  node.memory = kMebi;
  apart([&] {
    const Pinned pinned = pin_to(node);
    EXPECT_TRUE(pinned.threads);
    EXPECT_EQ(pinned.memory, grants_policies());
    apart([&] {
      EXPECT_EQ(allowed_cpus(), Numbers({before.back()}));
      EXPECT_EQ(policy(), pinned.memory ? kFirstPreferred : Policy());
    });
  });
  EXPECT_EQ(allowed_cpus(), before);
  EXPECT_EQ(policy(), Policy());
}

// The machine of this test has no node 1000; nor may the thread use the node's CPUs.
TEST(PinTo, ChangesNothingThatItCannotHave) {
  apart([] {
    const Numbers before = allowed_cpus();
    NumaNode node;
    node.number = 1000;
    node.cpus = {before.back() + 1000};
    node.memory = kMebi;
    const Pinned pinned = pin_to(node);
    EXPECT_FALSE(pinned.threads);
    EXPECT_FALSE(pinned.memory);
    EXPECT_EQ(allowed_cpus(), before);
    EXPECT_EQ(policy(), Policy());
  });
}

TEST(PinTo, KeepsAPolicyThatSomebodyChose) {
  const bool grants = grants_policies();
  apart([&] {
    EXPECT_EQ(set_policy(kFirstInterleaved) == 0, grants);
    NumaNode node;
    node.cpus = allowed_cpus();
    node.memory = kMebi;
    const Pinned pinned = pin_to(node);
    EXPECT_TRUE(pinned.threads);
    EXPECT_FALSE(pinned.memory);
    EXPECT_EQ(policy(), grants ? kFirstInterleaved : Policy());
  });
}

// The calling thread's system calls of these numbers fail with EPERM from now on, as in containers.
void forbid(const std::vector<long>& calls) {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(PinTo, IsRefusedPartByPart) {
  NumaNode node;
  node.cpus = allowed_cpus();
  node.memory = kMebi;
  const bool grants = grants_policies();
  // Docker's usual filter refuses memory policies and allows affinity.
  for (const std::vector<long>& calls :
       {std::vector<long>{SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind},
        std::vector<long>{SYS_set_mempolicy}}) {
    apart([&] {
      forbid(calls);
      const Pinned pinned = pin_to(node);
      EXPECT_TRUE(pinned.threads);
      EXPECT_FALSE(pinned.memory);
    });
  }
  apart([&] {
    forbid({SYS_sched_setaffinity});
    const Pinned pinned = pin_to(node);
    EXPECT_FALSE(pinned.threads);
    EXPECT_EQ(pinned.memory, grants);
  });
  apart([&] {
    forbid({SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_get_mempolicy, SYS_set_mempolicy});
    EXPECT_TRUE(allowed_cpus().empty());
    const Pinned pinned = pin_to(node);
    EXPECT_FALSE(pinned.threads);
    EXPECT_FALSE(pinned.memory);
  });
}

// Whatever this machine is: what it tells is consistent, and its memory is where it was preferred.
TEST(ThisMachine, HasNodesThatHoldItsCpus) {
  const std::vector<NumaNode> nodes = numa_nodes();
  EXPECT_NE(nodes.empty(), std::filesystem::exists("/sys/devices/system/node/online"));
  if (nodes.empty()) return;
  for (const std::int32_t cpu : allowed_cpus()) {
    EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(),
                            [cpu](const NumaNode& node) {
                              return std::binary_search(node.cpus.begin(), node.cpus.end(), cpu);
                            }),
              1)
        << cpu;
  }
  for (const NumaNode& node : nodes) EXPECT_LE(node.free + node.cache, node.memory);
}

TEST(ThisMachine, PlacesPagesWhereTheThreadIsPinned) {
  for (const NumaNode& node : numa_nodes()) {
    if (node.free < 64 * kMebi) continue;
    apart([&] {
      if (!pin_to(node).memory) return;
      const Reservation reservation(kMebi, Populate::yes, "a test");
      void* page = reservation.bytes().data();
      int where = -1;
      ASSERT_EQ(::syscall(SYS_move_pages, 0, 1, &page, nullptr, &where, 0), 0);
      EXPECT_EQ(where, node.number);
    });
  }
}

}  // namespace
}  // namespace fpdt
