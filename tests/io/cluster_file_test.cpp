// Every cluster in configs/clusters loads; files that contradict themselves do not.
#include "fpdt/io/cluster_file.h"

#include <filesystem>
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "fpdt/io/model_file.h"
#include "fpdt/io/problem_json.h"

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kBare =
    "name: n\nnodes: 1\ndevices_per_node: 2\ndevice_memory: 1GiB\nhost_memory: 7MiB\n"
    "source: s\n";

std::string cluster_error(std::string_view text) {
  return input_error([&] { static_cast<void>(parse_cluster(text, "c.yaml")); });
}

TEST(ClusterFile, EveryConfigLoadsUnderItsOwnName) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/clusters"))) {
    const ClusterSpec cluster = load_cluster(entry.path().string());
    EXPECT_EQ(cluster.name, entry.path().stem().string());
    EXPECT_GT(cluster.rates.peak_flops, cluster.rates.matmul.typical);
    EXPECT_EQ(parse_cluster(print_cluster(cluster), "printed"), cluster);
    ++count;
  }
  EXPECT_GE(count, 11);
}

TEST(ClusterFile, SaysWhyNothingRunsThere) {
  for (const char* name : {"v100-16g-summit", "mi300x-192g-x8"}) {
    const std::string file = std::string("configs/clusters/") + name + ".yaml";
    EXPECT_THAT(load_cluster(source_path(file)).plan_only, HasSubstr(" has no ")) << name;
  }
  EXPECT_EQ(parse_cluster(kBare, "c.yaml").plan_only, "");
  EXPECT_THAT(cluster_error(std::string(kBare) + "plan_only: true\n"),
              HasSubstr("plan_only: expected the reason in words, found \"true\""));
}

// From one node to the 576 of LSS, what lies outside the arenas leaves 14 of the 16 GiB.
TEST(ClusterFile, SummitHasAnyNumberOfNodes) {
  const ClusterSpec node = load_cluster(source_path("configs/clusters/v100-16g-summit.yaml"));
  EXPECT_EQ(node.row_multiple, 1);
  for (const int devices : {6, 36, 144, 864, 3456}) {
    const ClusterSpec cluster = with_devices(node, devices);
    EXPECT_TRUE(check(cluster).empty()) << devices;
    EXPECT_EQ(cluster.devices(), devices);
    EXPECT_EQ(cluster.devices_per_node, 6);
    EXPECT_GT(cluster.device_memory - cluster.outside_bytes(), Bytes{std::int64_t{14} << 30});
  }
}

// They describe the same machines, so nobody has to write a file for another number of them.
TEST(ClusterFile, ConfigsOfOneMachineDifferInNumberOnly) {
  const auto load = [](const std::string& name) {
    return load_cluster(source_path("configs/clusters/" + name + ".yaml"));
  };
  for (const int devices : {2, 4, 8, 16, 32}) {
    const ClusterSpec cluster = load("a100-80g-x" + std::to_string(devices));
    EXPECT_EQ(with_devices(load("a100-80g-x4"), devices), cluster);
  }
}

// Nobody measured the driver of a GPU to be nothing.
TEST(ClusterFile, SaysWhatItTakesForTheMemoryOutside) {
  const auto note = [](const std::string& attention) {
    std::vector<std::string> notes;
    static_cast<void>(
        parse_cluster("name: n\nnodes: 1\ndevices_per_node: 2\ndevice_memory: 1GiB\n"
                      "host_memory: 7 GiB\nsource: s\n" +
                          attention,
                      "c.yaml", &notes));
    return notes.empty() ? "" : notes.front();
  };
  EXPECT_NE(note("").find("taken as none, as on a CPU; for a GPU give 1 to 4 GiB, "),
            std::string::npos);
  EXPECT_NE(note("attention: cudnn\nrow_multiple: 128\n").find("1.94 GiB is an estimate"),
            std::string::npos)
      << note("attention: cudnn\nrow_multiple: 128\n");
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
  expected.host_outside = estimated_host_outside(expected);
  expected.source = std::string("s");
  EXPECT_EQ(cluster, expected);
}

// Every field differs from its default and from the others.
ClusterSpec unusual() {
  double next = 0;
  const auto rate = [&next] {
    next += 1;
    return Rate{next * 1e12, next * 0.9e12, next * 1.1e12};
  };
  const auto share = [&next] {
    next += 1;
    return Rate{1 / next, 0.5 / next, 1 / next};
  };
  ClusterSpec cluster{"null", 3,  5,  2, Bytes{3 << 29}, Bytes{7001}, 128, {}, 256, true, {},
                      {},     {}, {}, {}};
  cluster.attention = AttentionKernels::cudnn;
  cluster.source = "a: \"b\" \\ # c";
  cluster.outside = {Bytes{500 << 20}, Bytes{60}, Bytes{70}, Bytes{384 << 20}, Bytes{24 << 20}};
  cluster.host_outside = {Bytes{900}, Bytes{100}, Bytes{50}, Bytes{10}};
  Rates& rates = cluster.rates;
  rates.peak_flops = 312e12;
  rates.matmul = rate();
  rates.attention_forward = {190e12, 190e12, 190e12};
  rates.attention_backward = rate();
  rates.softmax_forward = rate();
  rates.softmax_backward = rate();
  rates.device_bandwidth = rate();
  rates.h2d = rate();
  rates.d2h = rate();
  rates.switch_bandwidth = rate();
  rates.devices_per_switch = 2;
  rates.host_bandwidth = rate();
  rates.attention_heads = {{64, 0.5}, {128, 1}};
  rates.attention_heads_backward = {{128, 1}, {256, 0.6}};
  rates.own_attention_heads = {{128, 1}, {256, 0.75}};
  rates.own_attention_heads_backward = {{128, 1}, {256, 0.5}};
  rates.link = rate();
  rates.network = rate();
  rates.op_seconds = {6.5e-6, 1.0 / 3e6, 1e-5};
  rates.collective_seconds = {1e-5, 0, 1e-4};
  rates.matmul_shares = {{64, 0.25}, {1024, 0.75}};
  rates.attention_shares = {{1, 1.0 / 3}};
  rates.kinds = {{"norm", rate()}, {"adamw", {1, 1, 1}}};
  rates.interference = {share(), share(), share(), share(), share(), share(), share(), share()};
  return cluster;
}

TEST(ClusterFile, RoundTrips) {
  EXPECT_EQ(parse_cluster(print_cluster(unusual()), "c.yaml"), unusual());
  const ClusterSpec bare = parse_cluster(kBare, "c.yaml");
  EXPECT_EQ(bare.rates, Rates{});
  EXPECT_EQ(parse_cluster(print_cluster(bare), "c.yaml"), bare);
}

std::vector<std::string> notes_on(const std::string& more) {
  std::vector<std::string> notes;
  static_cast<void>(parse_cluster(std::string(kBare) + more, "c.yaml", &notes));
  return notes;
}

// What a person forgot is never counted as nothing in silence.
TEST(ClusterFile, NotesWhatIsLeftOut) {
  EXPECT_THAT(notes_on(""), testing::ElementsAre(HasSubstr("c.yaml: no `outside`"),
                                                 HasSubstr("c.yaml: no `host_outside`")));
  EXPECT_THAT(notes_on("outside: {}\nhost_outside: {}\n"), testing::IsEmpty());
  EXPECT_THAT(
      notes_on("outside: {}\nhost_outside: {system: 1MiB}\nrates: {peak_flops: 9, matmul: 8, "
               "h2d: 3, d2h: {typical: 3, high: 4}}\n"),
      testing::ElementsAre(HasSubstr("no range for matmul, h2d: ")));
}

TEST(ClusterFile, ConfigsLeaveNothingOut) {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/clusters"))) {
    std::vector<std::string> notes;
    static_cast<void>(load_cluster(entry.path().string(), &notes));
    EXPECT_THAT(notes, testing::IsEmpty());
  }
}

// Schedules contain clusters. One without rates is written as before rates existed.
TEST(ClusterFile, TravelsInProblems) {
  Problem problem;
  problem.model = load_model(source_path("models/llama-tiny.yaml"));
  problem.cluster = unusual();
  EXPECT_EQ(parse_problem(print_problem(problem, {})).first.cluster, unusual());
  problem.cluster = parse_cluster(kBare, "c.yaml");
  EXPECT_THAT(print_problem(problem, {}), Not(HasSubstr("rates")));
  EXPECT_THAT(print_problem(problem, {}), Not(HasSubstr("numa_nodes")));
}

TEST(ClusterFile, PrintsForPeople) {
  const std::string text = print_cluster(unusual());
  EXPECT_THAT(text, HasSubstr("name: \"null\"\n"));
  EXPECT_THAT(text, HasSubstr("device_memory: 1536MiB\nhost_memory: 7001B\n"));
  EXPECT_THAT(text, HasSubstr("\noutside:\n  context: 500MiB\n"));
  EXPECT_THAT(text, HasSubstr("\n  matmul: {typical: 1e12, low: 900e9, high: 1.1e12}\n"));
  EXPECT_THAT(text, HasSubstr("\n  matmul_shares: {64: 0.25, 1024: 0.75}\n"));
  EXPECT_THAT(text, HasSubstr("\n  attention_forward: 190e12\n"));
  EXPECT_THAT(text, HasSubstr("\n  kinds:\n    norm: {"));
  EXPECT_THAT(text, HasSubstr("\n    adamw: 1\n"));
  EXPECT_THAT(text, HasSubstr("\n  op_seconds: {typical: 6.5e-6,"));
}

TEST(ClusterFile, RefusesRatesThatCannotBe) {
  const auto error = [](std::string_view rates) {
    return cluster_error(std::string(kBare) + "rates: {" + std::string(rates) + "}");
  };
  EXPECT_EQ(error("peak_flops: 1e12, matmul: 1e12, link: {typical: 3, low: 2}"), "");
  EXPECT_THAT(error("matmul: 1e12"), HasSubstr("peak_flops: expected the peak"));
  EXPECT_EQ(error("peak_flops: 1e12, attention_forward: 2e12, softmax_forward: 1e10"), "");
  EXPECT_THAT(error("peak_flops: 1e12, attention_forward: 2e12"),
              HasSubstr("attention_forward: expected at most the peak_flops of 1e+12"));
  EXPECT_THAT(error("matmul: fast"),
              HasSubstr("c.yaml:7:17: rates.matmul: expected a number or a map"));
  EXPECT_THAT(error("matmul: {low: 1}"), HasSubstr("rates.matmul.typical: this key is required"));
  EXPECT_THAT(error("matmul: {typical: 1, hihg: 2}"), HasSubstr("did you mean \"high\"?"));
  EXPECT_THAT(error("matmul: {typical: 1, low: 2}"), HasSubstr("[C102]"));
  EXPECT_THAT(error("matmul: -1"), HasSubstr("[C102]"));
  EXPECT_THAT(error("matmul: 1e999"), HasSubstr("expected a number"));
  EXPECT_THAT(error("matmul_shares: {many: 1}"), HasSubstr("expected a size as the key"));
  EXPECT_THAT(error("matmul_shares: [1, 2]"), HasSubstr("expected a map"));
  EXPECT_THAT(error("matmul_shares: {1: 1, 2: all}"), HasSubstr("matmul_shares.2: expected a num"));
  EXPECT_THAT(error("kinds: {nrom: 1}"), HasSubstr("did you mean \"norm\"?"));
  EXPECT_THAT(error("kinds: {norm: x}"), HasSubstr("rates.kinds.norm: expected a number"));
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
