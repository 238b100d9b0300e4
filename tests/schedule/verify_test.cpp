// The whole verifier on the hand-written schedules.
#include "fpdt/schedule/verify.h"

#include <gtest/gtest.h>

#include "fpdt/schedule/depend.h"

#include "golden.h"

namespace fpdt {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, IsSafe) { EXPECT_EQ(format_diagnostics(verify(test::golden(GetParam()))), ""); }

TEST_P(Golden, EverySingleEdgeIsNeeded) {
  Schedule schedule = test::golden(GetParam());
  int removed = 0;
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      const std::vector<After> whole = op.after;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        op.after.erase(op.after.begin() + static_cast<std::ptrdiff_t>(i));
        const std::set<std::string> found = test::codes(schedule);
        EXPECT_FALSE(found.empty()) << block.name << "." << op.name << " without edge " << i;
        for (const std::string& code : found) {
          EXPECT_TRUE(code == "S304" || code == "S308" || code == "S309" || code == "S404") << code;
        }
        op.after = whole;
        ++removed;
      }
    }
  }
  EXPECT_GT(removed, 4);
}

// Attention whose keys travel. Its edges are derived again, so that what is missing is the op.
class GoldenAttention : public testing::TestWithParam<const char*> {};

TEST_P(GoldenAttention, EverySingleOpIsNeeded) {
  const Schedule whole = test::golden(GetParam());
  for (std::size_t b = 0; b < whole.blocks.size(); ++b) {
    for (std::size_t i = 0; i < whole.blocks[b].ops.size(); ++i) {
      Schedule schedule = whole;
      for (Block& block : schedule.blocks) {
        for (Op& op : block.ops) op.after.clear();
      }
      std::vector<Op>& ops = schedule.blocks[b].ops;
      const std::string name = ops[i].name;
      ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
      depend(schedule);
      EXPECT_FALSE(test::codes(schedule).empty()) << "without " << name;
    }
  }
}

std::string name_of_file(const testing::TestParamInfo<const char*>& file) {
  const std::string name = file.param;
  return name.substr(0, name.find('.'));
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("fpdt_backward.json", "tied_head.json",
                                         "zigzag_ring_2.json", "lss_2.json", "tp_sp_2.json"),
                         name_of_file);
INSTANTIATE_TEST_SUITE_P(Files, GoldenAttention,
                         testing::Values("fpdt_backward.json", "zigzag_ring_2.json", "lss_2.json",
                                         "tp_sp_2.json"),
                         name_of_file);

TEST(Verified, HoldsTheSchedule) {
  const VerifiedSchedule verified_schedule = verified(test::golden("tied_head.json"));
  EXPECT_EQ(verified_schedule.schedule().blocks.size(), 3u);
}

TEST(Verified, ThrowsTheFindings) {
  Schedule schedule = test::golden("tied_head.json");
  test::op_of(schedule, "end", "norm").after.clear();
  try {
    verified(schedule);
    FAIL() << "accepted a race";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("end.norm: read of version 0 of grad"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("[S304]"), std::string::npos);
  }
}

TEST(Verify, CapsItsFindings) {
  Schedule schedule;
  for (int i = 0; i < 1000; ++i) {
    Buffer buffer;
    buffer.name = std::to_string(i);
    schedule.buffers.push_back(buffer);
  }
  EXPECT_EQ(verify(schedule).size(), kMostFindings);
}

TEST(Verify, AnEmptyScheduleIsSafe) { EXPECT_TRUE(verify(Schedule{}).empty()); }

// Two all-to-alls in the wrong order carry the wrong chunks.
TEST(Verify, SwappedCollectivesAreFound) {
  Schedule schedule = test::golden("fpdt_backward.json");
  std::swap(test::body_of<AllToAll>(schedule, "backward", "a2a.0").send,
            test::body_of<AllToAll>(schedule, "backward", "a2a.1").send);
  EXPECT_EQ(test::codes(schedule).count("S301"), 1u);
}

}  // namespace
}  // namespace fpdt
