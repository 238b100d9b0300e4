// fpdt-plan draw --graph: blocks and windows that are chosen, and what it says of others.
#include <regex>

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

// The contiguous layout of a ring of two: the second rank sees most keys.
TEST_F(Draw, DrawsRanksThatWaitForEachOther) {
  write("ring.yaml",
        "storage: f32\nkeys: ring\nmesh: {ring: 2}\ntiles: {chunk_tokens: 2048, ffn_rows: 512, "
        "loss_rows: 512}\nlayer_classes:\n  - {layers: rest, recompute: from_input, keep: {}}\n");
  const auto lower = [&](const std::string& flags) {
    return plan("lower --model model.yaml --cluster timed.yaml " + flags);
  };
  const Outcome lowered = lower("--strategy ring.yaml --seq-len 2K --out-dir ring");
  ASSERT_EQ(lowered.code, 0) << lowered.err;
  const auto draw = [&](const std::string& flags) {
    return plan("draw ring/schedule.json " + flags);
  };
  const Outcome drawn = draw("--ranks all --out ranks.svg");
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const std::string svg = contents("ranks.svg");
  for (const char* part : {">one rank<", ">rank 0<", ">rank 1<", "step of 2 ranks, all together"}) {
    EXPECT_TRUE(says(svg, part)) << part;
  }
  // The light rank is idle while the heavy one computes.
  const auto busy = [&](const std::string& label) {
    std::smatch found;
    const std::regex row(">" + label + "</text>\n<text [^>]*>([0-9.]+) %<");
    return std::regex_search(svg, found, row) ? std::stod(found[1]) : -1;
  };
  EXPECT_GT(busy("rank 0"), 0);
  EXPECT_LT(busy("rank 0") + 5, busy("rank 1"));
  EXPECT_EQ(busy("rank 1"), busy("one rank"));

  ASSERT_EQ(draw("--ranks 1 --out one.svg").code, 0);
  EXPECT_TRUE(says(contents("one.svg"), "rows of rank 0 are left out"));
  EXPECT_EQ(draw("--ranks 0,1 --out ranks.html").code, 0);
  for (const char* wrong : {"2", "-1", "0,", "0:1", "some", "1,all"}) {
    const Outcome refused = draw(fmt::format("--ranks={} --out wrong.svg", wrong));
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_TRUE(says(refused.err, "expected all, or some of 0 to 1, such as 0,1")) << refused.err;
  }
  EXPECT_EQ(draw("--ranks all --graph --block forward --out graph.dot").code, 2);
  EXPECT_FALSE(exists("wrong.svg"));

  // Of many ranks the first, the last and some between them have rows.
  write("few.yaml", contents("strategy.yaml") + "mesh: {replicas: 8}\n");
  ASSERT_EQ(lower("--gpus 16 --strategy few.yaml --seq-len 64 --out-dir few").code, 0);
  ASSERT_EQ(plan("draw few/schedule.json --ranks all --out few.svg").code, 0);
  const std::string few = contents("few.svg");
  EXPECT_TRUE(says(few, "rows of ranks 1, 3, 5, 7, 9, 11, 13-14 are left out"));

  // Ranks that are too many to simulate together.
  write("many.yaml", contents("strategy.yaml") + "micro_batches: 256\nmesh: {replicas: 128}\n");
  const Outcome many = lower("--gpus 256 --strategy many.yaml --seq-len 64 --out-dir many");
  ASSERT_EQ(many.code, 0) << many.err;
  const Outcome refused = plan("draw many/schedule.json --ranks all --out many.svg");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(says(refused.err, "too many to simulate 256 ranks together")) << refused.err;
}

}  // namespace
}  // namespace fpdt::test
