// fpdt-plan draw --graph: blocks and windows that are chosen, and what it says of others.
#include <fmt/format.h>

#include "command_line.h"

namespace fpdt::test {
namespace {

using Draw = CommandLine;

// A graph needs no rates and no problem section; without a block, or with a wrong one, the answer
// names those that there are.
TEST_F(Draw, DrawsGraphsOfBlocks) {
  const std::string golden = FPDT_SOURCE_DIR "/tests/golden/fpdt_backward.json";
  const auto draw = [&](const std::string& flags) {
    return plan(fmt::format("draw {} --graph --out graph.dot {}", golden, flags));
  };
  ASSERT_EQ(draw("--block backward").code, 0);
  EXPECT_TRUE(says(contents("graph.dot"), "backward of layer")) << contents("graph.dot");
  const Outcome both = draw("--block gather,backward");
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_TRUE(says(contents("graph.dot"), "gather of layer"));
  const Outcome window = draw("--block backward --ops 3-9");
  ASSERT_EQ(window.code, 0) << window.err;
  EXPECT_TRUE(says(window.out, "folded ops 1-2 of 30")) << window.out;
  EXPECT_TRUE(says(window.out, "folded ops 10-30 of 30")) << window.out;
  for (const char* wrong : {"", "--block bakward"}) {
    const Outcome refused = draw(wrong);
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(says(refused.err, "backward                30 ops, 3 calls")) << refused.err;
  }
  EXPECT_TRUE(says(draw("--block bakward").err, "Did you mean backward?"));
  for (const char* wrong :
       {"--ops 0-3", "--ops 9-3", "--ops 9-31", "--ops 7", "--ops -", "--ops 1-x"}) {
    const Outcome refused = draw(fmt::format("--block backward {}", wrong));
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_TRUE(says(refused.err, "two numbers from 1 to 30")) << refused.err;
  }
  // The cluster of this one has no rates.
  EXPECT_EQ(plan("draw plan/schedule.json --graph --block forward --out rateless.dot").code, 0);
  EXPECT_EQ(draw("--block backward --cluster timed.yaml").code, 2);
  EXPECT_EQ(draw("--block backward --theme dark").code, 2);
  EXPECT_EQ(plan(fmt::format("draw {} --out step.svg --block backward", golden)).code, 2);
}

}  // namespace
}  // namespace fpdt::test
