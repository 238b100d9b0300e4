// Every case makes a schedule that the verifier accepts, with an op of the demand that its name
// says.
#include "fpdt/bench/cases.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/cost/demand.h"
#include "fpdt/schedule/attention_workspace.h"
#include "fpdt/schedule/sum_workspace.h"

namespace fpdt {
namespace {

// `finish` throws when the verifier finds anything.
Schedule schedule_of(const BenchCase& one, std::int64_t ranks) {
  Sheet sheet(ranks, Bytes{32 << 20});
  one.write(sheet);
  return sheet.finish().schedule();
}

class Cases : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Cases, testing::Values(1, 2, 3));

TEST_P(Cases, ProductsHaveTheSizeAndEveryForm) {
  std::set<std::pair<bool, bool>> forms;
  for (const Dtype storage : {Dtype::f32, Dtype::bf16}) {
    for (const BenchCase& one : matmul_cases(8, 4096, storage)) {
      const Schedule schedule = schedule_of(one, GetParam());
      const Op& op = schedule.blocks.back().ops.front();
      const auto& product = std::get<Matmul>(op.body);
      forms.insert({product.transpose_a, product.transpose_b});
      const Demand asked = demand(schedule, op);
      EXPECT_EQ(asked.size, 8);
      EXPECT_EQ(asked.flops, 2.0 * 8 * 512 * 1024);
    }
  }
  EXPECT_EQ(forms, (std::set<std::pair<bool, bool>>{{false, true}, {false, false}, {true, false}}));
}

TEST(CaseShapes, ProductsAreNotOverTheLargestSide) {
  for (const BenchCase& one : matmul_cases(64, 100, Dtype::bf16)) {
    const Schedule schedule = schedule_of(one, 1);
    const auto& product = std::get<Matmul>(schedule.blocks.back().ops.front().body);
    EXPECT_EQ(product.m * product.n * product.k, 64 * 100 * 100) << one.what;
  }
}

TEST_P(Cases, TilesAreATriangle) {
  for (const Dtype storage : {Dtype::f32, Dtype::bf16}) {
    for (const bool workspace : {false, true}) {
      const TileShape shape{16, 4, 2, 8, GetParam(), storage, workspace};
      const Schedule forward = schedule_of(attention_forward_case(shape), GetParam());
      const Schedule backward = schedule_of(attention_backward_case(shape), GetParam());
      for (const Schedule* schedule : {&forward, &backward}) {
        const std::vector<Demand> asked = demands(*schedule).back();
        ASSERT_EQ(asked.size(), 6U);
        double pairs = 0;
        for (const Demand& tile : asked) pairs += tile.pairs;
        EXPECT_EQ(pairs, 4 * 48 * 49 / 2);       // four heads, 48 tokens
        EXPECT_EQ(asked[1].pairs, 4 * 16 * 16);  // no key is masked
      }
    }
  }
}

// All tiles share one workspace, as large as the largest that they ask for.
TEST(CaseShapes, ALibrarysTilesShareAWorkspace) {
  const TileShape shape{128, 8, 2, 64, 1, Dtype::bf16, true};
  const Schedule schedule = schedule_of(attention_backward_case(shape), 1);
  std::set<BufferIndex> workspaces;
  for (const Op& op : schedule.blocks.back().ops) {
    workspaces.insert(std::get<AttentionBackward>(op.body).workspace.buffer);
  }
  ASSERT_EQ(workspaces.size(), 1U);
  EXPECT_GE(schedule.buffers[static_cast<std::size_t>(*workspaces.begin())].slot_bytes(),
            attention_workspace_bytes(AttentionDirection::backward, 128, 128, 8, 2, 64));
}

TEST_P(Cases, MemoryBoundOpsAreAllThereAre) {
  std::set<std::string> kinds;
  for (const Dtype storage : {Dtype::f32, Dtype::bf16}) {
    for (const BenchCase& one : memory_cases(8, 32, storage)) {
      const Schedule schedule = schedule_of(one, GetParam());
      const Op& op = schedule.blocks.back().ops.back();
      EXPECT_EQ(one.what, body_name(op.body));
      EXPECT_EQ(demand(schedule, op).work, Work::memory) << one.what;
      kinds.insert(one.what);
    }
  }
  std::set<std::string> expected(kBodyNames.begin(), kBodyNames.end());
  for (const char* other :
       {"matmul", "grouped_matmul", "grouped_gradient", "attention_forward", "attention_backward",
        "all_to_all", "all_gather", "reduce_scatter", "all_reduce", "exchange"}) {
    expected.erase(other);
  }
  EXPECT_EQ(kinds, expected);
}

TEST_P(Cases, CopiesAndCollectivesMoveTheirBytes) {
  for (const LaneKind lane : {LaneKind::h2d, LaneKind::d2h}) {
    const Schedule schedule =
        schedule_of({"", [=](Sheet& sheet) { write_copy(sheet, lane, 4096); }}, GetParam());
    const Demand asked = demands(schedule).back().front();
    EXPECT_EQ(asked.work, lane == LaneKind::h2d ? Work::h2d : Work::d2h);
    EXPECT_EQ(asked.bytes, 4096);
  }
  if (GetParam() == 1) return;
  std::set<std::string> kinds;
  for (const BenchCase& one : collective_cases(4096 * GetParam(), GetParam())) {
    const Schedule schedule = schedule_of(one, GetParam());
    const Op& op = schedule.blocks.back().ops.front();
    EXPECT_EQ(one.what, body_name(op.body));
    const std::int64_t blocks = one.what == "all_reduce" ? GetParam() : 1;
    EXPECT_EQ(demand(schedule, op).sent, blocks * 4096 * (GetParam() - 1)) << one.what;
    kinds.insert(one.what);
  }
  EXPECT_EQ(kinds.size(), 5U);
}

// Two nodes of three ranks.
TEST(CaseShapes, CollectivesOfANodeAndBetweenNodes) {
  struct Expected {
    const char* group;
    std::int64_t members, stride;
  };
  for (const auto& [group, members, stride] :
       {Expected{kEverybody, 6, 1}, Expected{kNode, 3, 1}, Expected{kAcross, 2, 3}}) {
    for (const BenchCase& one : collective_cases(48, members, group)) {
      Sheet sheet(6, Bytes{1 << 20}, 2);
      one.write(sheet);
      const Schedule schedule = sheet.finish().schedule();
      const Demand asked = demand(schedule, schedule.blocks.back().ops.front());
      EXPECT_EQ(asked.group, members) << group;
      EXPECT_EQ(asked.stride, stride) << group;
    }
  }
}

// Ranks that cannot read each other's memory need the workspace.
TEST(CaseShapes, SumsHaveAWorkspace) {
  int sums = 0;
  for (const BenchCase& one : collective_cases(4096 * 3, 3)) {
    const Schedule schedule = schedule_of(one, 3);
    for (const Block& block : schedule.blocks) {
      for (const Op& op : block.ops) {
        const auto expect = [&](const auto& sum) {
          ++sums;
          ASSERT_TRUE(sum.workspace.present()) << op.name;
          const Buffer& received = schedule.buffers[index(sum.receive[0].operand.buffer)];
          EXPECT_EQ(schedule.buffers[index(sum.workspace.buffer)].slot_bytes(),
                    sum_workspace_bytes(3, received.slot_bytes()));
        };
        if (const auto* scatter = std::get_if<ReduceScatter>(&op.body)) expect(*scatter);
        if (const auto* reduce = std::get_if<AllReduce>(&op.body)) expect(*reduce);
      }
    }
  }
  EXPECT_GE(sums, 2);
}

// Operands cycle through the working set, with no more slots than needed.
TEST(Sheet, SlotsFillTheWorkingSet) {
  const auto slots = [](Bytes working_set) {
    Sheet sheet(1, working_set);
    write_copy(sheet, LaneKind::h2d, 1024);
    const std::vector<Buffer> buffers = sheet.finish().schedule().buffers;
    EXPECT_EQ(buffers[0].slots, buffers[1].slots);
    return buffers[0].slots;
  };
  EXPECT_EQ(slots(Bytes{1}), 1);
  EXPECT_EQ(slots(Bytes{10 * 2048}), 10);
  EXPECT_EQ(slots(Bytes{1 << 30}), 64);
}

}  // namespace
}  // namespace fpdt
