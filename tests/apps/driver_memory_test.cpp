// Compares the driver's count of GPU memory with the prediction, on made-up numbers.
#include "run/driver_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fpdt/plan/fit.h"
#include "fpdt/plan/lowering/lower_ops.h"

#include "command_line.h"
#include "problems.h"
#include "run/memory_report.h"

namespace fpdt {
namespace {

using test::says;

constexpr std::int64_t kMebi = 1 << 20;
constexpr std::int64_t kGibi = 1 << 30;

DriverMemory used(std::int64_t arenas, std::int64_t outside, std::int64_t first,
                  std::int64_t later) {
  DriverMemory memory;
  memory.arenas = Bytes{arenas};
  memory.outside = Bytes{outside};
  memory.before = Bytes{500 * kMebi};
  memory.note_step(Bytes{first});
  memory.note_step(Bytes{later});
  return memory;
}

TEST(DriverMemory, RanksOnOneGpuShareItsContextAndHaveNoChannels) {
  const OutsideArena outside{Bytes{500}, Bytes{90}, Bytes{10}, Bytes{7}, Bytes{7}};
  EXPECT_EQ(outside_on_one_gpu(outside, 1), Bytes{600});
  EXPECT_EQ(outside_on_one_gpu(outside, 4), Bytes{900});
  EXPECT_EQ(outside_on_one_gpu({{}, Bytes{100}, Bytes{10}, {}, {}}, 4), Bytes{0});
}

// An H200 took 24 MiB more with 23.0 GiB than with 10.8 GiB, and 42 MiB more again with 44.0 GiB.
TEST(DriverMemory, AGpuMapsPinnedMemory) {
  const OutsideArena outside{Bytes{500}, Bytes{90}, Bytes{10}, {}, {}};
  EXPECT_EQ(outside.page_tables(Bytes{3 * kGibi}), Bytes{6 * kMebi});
  EXPECT_EQ(outside.page_tables(Bytes{1}), Bytes{8});
  EXPECT_EQ(OutsideArena{}.page_tables(Bytes{kGibi}), Bytes{0});
}

// Two nodes of two ranks. On one lane everybody meets, on another the ranks of a node.
TEST(DriverMemory, RanksInProcessesHaveChannelsToThoseTheyMeet) {
  Schedule schedule;
  schedule.ranks = 4;
  schedule.groups = {{"world", 4, 1, {}}, {"node", 2, 1, {0, {2, 0, 2, 2}}}};
  schedule.blocks.push_back({"step", {}, {}});
  const auto exchange = [&](const char* group, std::int32_t lane) {
    schedule.blocks[0].ops.push_back({"op", {LaneKind::comm, lane}, AllToAll{group, {}, {}}, {}});
  };
  exchange("world", 0);
  exchange("node", 0);
  exchange("node", 1);
  const std::vector<std::int64_t> nodes{0, 0, 1, 1};
  const OutsideArena outside{Bytes{500}, Bytes{90}, Bytes{10}, Bytes{3200}, Bytes{320}};
  // The node's other rank on both lanes and for messages; across nodes the first lane and messages.
  EXPECT_EQ(outside_of_process(outside, schedule, 2, nodes), Bytes{600 + 3 * 3200 + 2 * 320});
  // NCCL's own all-gather across nodes has a communicator for itself.
  for (const char* group : {"world", "world", "node"}) {
    schedule.blocks[0].ops.push_back({"op", {LaneKind::comm, 0}, AllGather{group, {}, {}}, {}});
  }
  EXPECT_EQ(outside_of_process(outside, schedule, 2, nodes), Bytes{600 + 3 * 3200 + 3 * 320});
  EXPECT_EQ(outside_of_process({}, schedule, 2, nodes), Bytes{0});
}

// What a run counts for each rank is at most what its plan counted, in every kind of grid.
TEST(DriverMemory, OutsideTheArenaIsAtMostThatOfThePlan) {
  struct Grid {
    int nodes, devices, tensor = 1, ring = 1, replicas = 1;
  };
  constexpr std::array<Grid, 8> kGrids{{{1, 4},
                                        {2, 2},
                                        {3, 2, 1, 3},
                                        {2, 4, 2, 1, 2},
                                        {2, 3, 1, 3},
                                        {2, 4, 1, 4},
                                        {4, 1, 1, 4},
                                        {2, 4, 4, 2}}};
  int checked = 0, equal = 0;
  for (int corner = 0; corner < 96; ++corner) {
    const Grid& grid = kGrids[static_cast<std::size_t>(corner % 8)];
    Problem problem = test::tiny_problem(test::tiny_llama(), grid.nodes * grid.devices, 96);
    problem.cluster.nodes = grid.nodes;
    problem.cluster.devices_per_node = grid.devices;
    problem.cluster.outside = {Bytes{500}, Bytes{90}, Bytes{10}, Bytes{3200}, Bytes{320}};
    Strategy strategy = test::tiny_strategy(96);
    strategy.mesh.tensor = grid.tensor;
    strategy.mesh.ring = grid.ring;
    strategy.mesh.replicas = grid.replicas;
    strategy.keys = grid.ring == 1 ? Keys::resident : corner % 3 == 0 ? Keys::gathered : Keys::ring;
    strategy.layout = corner % 2 == 0 ? Layout::interleaved : Layout::zigzag;
    strategy.zero = corner / 8 % 4;
    strategy.zero_groups = static_cast<ZeroGroups>(corner / 32);
    if (!check(problem, strategy).empty()) continue;
    ++checked;
    const Schedule schedule = lower_ops(problem, strategy);
    const Bytes planned = outside_bytes(problem, strategy, {});
    std::vector<std::int64_t> nodes;
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) nodes.push_back(rank / grid.devices);
    Bytes most;
    for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
      most = std::max(most, outside_of_process(problem.cluster.outside, schedule, rank, nodes));
    }
    EXPECT_LE(most, planned) << "corner " << corner;
    if (most == planned) ++equal;
  }
  EXPECT_GE(checked, 40);
  EXPECT_GE(equal, checked / 4);
}

TEST(DriverMemory, IsAtMostThePredictionAndNear) {
  // 256 MiB for small arenas, 1 % for large ones.
  for (const auto& [arenas, tolerance] :
       {std::pair(2 * kGibi, 256 * kMebi), std::pair(32 * kGibi, 256 * kMebi),
        std::pair(64 * kGibi, (65 * kGibi) / 100)}) {
    const std::int64_t all = arenas + kGibi;
    const auto with = [&, a = arenas](std::int64_t total) { return used(a, kGibi, total, total); };
    EXPECT_TRUE(agrees(with(all)));
    EXPECT_TRUE(agrees(with(all - tolerance)));
    EXPECT_FALSE(agrees(with(all - tolerance - 1)));
    EXPECT_FALSE(agrees(with(all + 1)));
    EXPECT_TRUE(says(table(with(all - tolerance - kMebi)), "under the prediction"));
    EXPECT_TRUE(says(table(with(all + 3 * kMebi)), "3.00 MiB over the prediction"));
    EXPECT_TRUE(says(table(with(all - kMebi)), "1.00 MiB of it unused"));
    // An estimate of libraries and peers that is off ends no run.
    EXPECT_TRUE(deviations(with(all - tolerance - 1)).empty());
    EXPECT_TRUE(deviations(with(all + kGibi)).empty());
  }
}

TEST(DriverMemory, NothingMayBeTakenAfterTheFirstStep) {
  const DriverMemory grown = used(kGibi, kGibi, 2 * kGibi - kMebi, 2 * kGibi);
  EXPECT_FALSE(agrees(grown));
  EXPECT_TRUE(says(table(grown), "taken after warm-up: 1.00 MiB"));
  const DriverMemory shrunk = used(kGibi, kGibi, 2 * kGibi, kGibi);
  EXPECT_TRUE(agrees(shrunk));
  EXPECT_EQ(shrunk.highest, Bytes{2 * kGibi});
}

TEST(DriverMemory, WithoutAPredictionOnlyGrowthIsWrong) {
  const DriverMemory memory = used(kGibi, 0, 3 * kGibi, 3 * kGibi);
  EXPECT_TRUE(agrees(memory));
  EXPECT_TRUE(says(table(memory), "fpdt-run bench --backend cuda measures it"));
  EXPECT_TRUE(json(memory).at("predicted").is_null());
  EXPECT_FALSE(agrees(used(kGibi, 0, 3 * kGibi, 3 * kGibi + 1)));
  EXPECT_TRUE(agrees(DriverMemory{}));
}

TEST(DriverMemory, StandsInTheReportInPlaceOfResidentPages) {
  MemoryReport report;
  report.predicted.device = Bytes{kGibi};
  report.spaces = {
      {MemorySpace::device, Bytes{kGibi}, Bytes{kMebi}, Bytes{kMebi}, Bytes{kGibi}, ""}};
  EXPECT_TRUE(json(report).at("driver").is_null());
  EXPECT_EQ(json(report).at("device").at("resident"), kGibi);
  EXPECT_TRUE(agrees(report));

  report.drivers = {used(kGibi, kGibi, 2 * kGibi, 2 * kGibi)};
  const auto found = json(report);
  EXPECT_TRUE(found.at("device").at("resident").is_null());
  EXPECT_EQ(found.at("driver").at("highest"), 2 * kGibi);
  EXPECT_EQ(found.at("driver").at("taken_after_warm_up"), 0);
  EXPECT_TRUE(found.at("as_predicted"));
  EXPECT_TRUE(peaks_json(report).at("measured").at("os_device_bytes").is_null());
  EXPECT_TRUE(says(table(report), " -\n")) << table(report);
  EXPECT_TRUE(says(table(report), "device memory in use, by the driver: 500 MiB before"))
      << table(report);

  report.drivers.front().note_step(Bytes{3 * kGibi});
  EXPECT_FALSE(agrees(report));
  EXPECT_FALSE(json(report).at("as_predicted"));
}

TEST(DriverMemory, OfSeveralGpusSaysWhichOne) {
  std::vector<DriverMemory> gpus(2, used(kGibi, kGibi, 2 * kGibi, 2 * kGibi));
  gpus[1].gpu = 3;
  EXPECT_TRUE(deviations(gpus).empty());
  EXPECT_TRUE(json(gpus).at("as_predicted"));
  note_step(gpus, std::vector{Bytes{2 * kGibi}, Bytes{2 * kGibi + kMebi}});
  EXPECT_EQ(deviations(gpus),
            (std::vector<std::string>{"GPU 3: 1.00 MiB of device memory was taken after warm-up"}));
  const auto found = json(gpus);
  EXPECT_FALSE(found.at("as_predicted"));
  EXPECT_TRUE(found.at("gpus")[0].at("as_predicted"));
  EXPECT_EQ(found.at("gpus")[1].at("gpu"), 3);
  EXPECT_TRUE(says(table(gpus), "GPU 3: device memory in use, by the driver: 500 MiB before"));
  EXPECT_TRUE(json(std::vector<DriverMemory>()).is_null());
}

// The result names every deviation in words.
TEST(MemoryReport, NamesEveryDeviation) {
  MemoryReport report;
  report.predicted.device = report.predicted.host_pinned = Bytes{kGibi};
  report.drivers = {used(kGibi, kGibi, 2 * kGibi, 2 * kGibi)};
  const Bytes all{kGibi};
  report.spaces = {{MemorySpace::device, all, all, all, all, ""},
                   {MemorySpace::host_pinned, all, all, all, all, ""}};
  report.process = {Bytes{3 * kMebi}, Bytes{2 * kMebi}, Bytes{kMebi}};
  auto found = json(report);
  EXPECT_TRUE(found.at("deviations").empty());
  EXPECT_EQ(found.at("host_pinned").at("resident"), kGibi);
  EXPECT_EQ(found.at("process").at("locked"), 2 * kMebi);
  EXPECT_TRUE(says(table(report), "3.00 MiB resident, 2.00 MiB locked, 1.00 MiB pinned"));
  report.spaces[0].untouched = {Bytes{2 * kMebi}, Bytes{512}};
  EXPECT_TRUE(says(table(report), "2.00 MiB of scratch was not used, 512 B lies between operands"));

  report.spaces[0].difference = "rank 0: 8 B that the schedule writes was not written";
  report.spaces[1].resident = Bytes{kGibi + kMebi};
  report.drivers.front().note_step(Bytes{2 * kGibi + kMebi});
  found = json(report);
  EXPECT_FALSE(found.at("as_predicted"));
  const auto wrong = found.at("deviations").get<std::vector<std::string>>();
  ASSERT_EQ(wrong.size(), 3U) << found;
  EXPECT_EQ(wrong[0], "device: rank 0: 8 B that the schedule writes was not written");
  EXPECT_TRUE(says(wrong[1], "host_pinned: 1.00 GiB over the prediction")) << wrong[1];
  EXPECT_EQ(wrong[2], "1.00 MiB of device memory was taken after warm-up");
}

}  // namespace
}  // namespace fpdt
