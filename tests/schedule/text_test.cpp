// Every small text of the format, printed and parsed.
#include "fpdt/schedule/text.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

TEST(Text, VersionsRoundTrip) {
  for (const std::string text :
       {"+0", "+1", "-1", "0", "3", "0-3", "layer", "-layer+31", "4*layer+1", "-2*layer", "layer-1",
        "4*layer+32*micro_batch+segment+7", "micro_batch", "2*segment-5"}) {
    const auto version = parse_version(text);
    ASSERT_TRUE(version) << text;
    EXPECT_EQ(version_text(*version), text);
  }
  EXPECT_EQ(parse_version("+1"), Version::plus(1));
  EXPECT_EQ(parse_version("4*layer+1"), Version::at(1, 4));
  EXPECT_EQ(parse_version("0-3"), Version::at(-3));
}

TEST(Text, MalformedVersionsAreRefused) {
  for (const std::string text :
       {"", "+", "-", "+-1", "01", "4*", "4layer", "layer+layer", "1+2", "lay", "4*layer+",
        "9223372036854775808", "+9223372036854775808", " 1", "1 "}) {
    EXPECT_FALSE(parse_version(text)) << text;
  }
}

TEST(Text, OperandsRoundTrip) {
  for (const std::string text : {"q[+1]", "x_host[4*layer+1] rows 8:16",
                                 "grad.w[0] rows 0:4 +=", "dq[+2] +=", "x[+0] rows 8:"}) {
    const auto operand = parse_operand(text);
    ASSERT_TRUE(operand) << text;
    const Operand value{0, operand->version, operand->row_first, operand->rows};
    EXPECT_EQ(operand_text(operand->buffer, value, operand->accumulate), text);
  }
}

TEST(Text, MalformedOperandsAreRefused) {
  for (const std::string text :
       {"", "q", "q[", "q]+1[", "[+1]", "q[]", "q[+1]x", "q[+1] rows", "q[+1] rows 8",
        "q[+1] rows 8:4", "q[+1] rows -1:4", "q[+1]+=", "q r[+1]", "q[+1] += "}) {
    EXPECT_FALSE(parse_operand(text)) << text;
  }
}

TEST(Text, RankExpressionsRoundTrip) {
  for (const std::string text :
       {"4096", "0", "-3", "r", "8*r", "-r", "4096+8*r", "4096-8*r", "8*(r+3)", "(r mod 4)",
        "8*(r mod 4)", "2+(r div 4)", "512*((r+1) mod 2)", "4096+512*((r+1) div 2 mod 4)",
        "4*(r div 4)+(r mod 2)", "1+r-2*(r mod 2)", "-r-(r+1)"}) {
    const auto expression = parse_rank_expression(text);
    ASSERT_TRUE(expression) << text;
    EXPECT_EQ(rank_expression_text(*expression), text);
  }
  EXPECT_EQ(parse_rank_expression("4096+512*((r+1) div 2 mod 4)")->at(5), 4096 + 512 * 3);
  EXPECT_EQ(parse_rank_expression("4096-8*r")->at(2), 4080);
  EXPECT_EQ(parse_rank_expression("1+r-2*(r mod 2)")->at(5), 4);
  // A term that is 0 on every rank is left out.
  EXPECT_EQ(rank_expression_text({3, {0, 1, 2, 3}, {8, 0, 1, 4}}), "3+8*(r mod 4)");
  EXPECT_EQ(rank_expression_text({0, {5, 0, 1, 1}, {}}), "0");
}

TEST(Text, MalformedRankExpressionsAreRefused) {
  for (const std::string text :
       {"", "x", "8*", "8r", "r+1", "(r", "(r mod 0)", "(r div 0)", "8*(r mod)", "1+2", "r r", "1+",
        "8*r+1", "r+r+r", "8*r(r mod 2)", "r+", "1+-r", "+r"}) {
    EXPECT_FALSE(parse_rank_expression(text)) << text;
  }
}

TEST(Text, EdgesRoundTrip) {
  const auto here = parse_after("rope.1");
  ASSERT_TRUE(here);
  EXPECT_EQ(here->op, "rope.1");
  EXPECT_EQ(here->calls_back, 0);
  const auto back = parse_after("forward.spill_kv.2@-3");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->block, "forward");
  EXPECT_EQ(back->op, "spill_kv.2");
  EXPECT_EQ(back->calls_back, 3);
  EXPECT_FALSE(back->of_layer);
  EXPECT_EQ(after_text(*back), "forward.spill_kv.2@-3");
  const auto of_layer = parse_after("gather.all@layer-2");
  ASSERT_TRUE(of_layer);
  EXPECT_EQ(of_layer->calls_back, 2);
  EXPECT_TRUE(of_layer->of_layer);
  EXPECT_EQ(after_text(*of_layer), "gather.all@layer-2");
  for (const std::string text :
       {"", "a b", "forward@-1", "forward.op@-0", "forward.op@-", "forward.op@1",
        "forward.op@layer", "forward.op@layer-0", "forward.op@layer-17", "forward.op@lay-1",
        ".op@-1", "forward.op@-99999999999"}) {
    EXPECT_FALSE(parse_after(text)) << text;
  }
}

TEST(Text, CallArgumentsRoundTrip) {
  for (const std::string text : {"7", "n", "n+1", "2*n", "-n+31", "-2*n-3", "0"}) {
    const auto argument = parse_call_argument(text);
    ASSERT_TRUE(argument) << text;
    EXPECT_EQ(call_argument_text(*argument), text);
  }
  for (const std::string text : {"", "-", "m", "n+", "n+n", "-7", "1+n"}) {
    EXPECT_FALSE(parse_call_argument(text)) << text;
  }
}

TEST(Text, LanesAndWords) {
  EXPECT_EQ(lane_text({LaneKind::h2d, 2}), "h2d.2");
  EXPECT_EQ(parse_lane("comm.1"), (Lane{LaneKind::comm, 1}));
  for (const std::string text : {"", "comm", "comm.", "comm.x", "gpu.0", "comm.-1", "comm.01"}) {
    EXPECT_FALSE(parse_lane(text)) << text;
  }
  EXPECT_EQ(parse_word<Dtype>("bf16"), Dtype::bf16);
  EXPECT_FALSE(parse_word<Dtype>("f16"));
  EXPECT_EQ(words<MemorySpace>().size(), 3u);
}

TEST(Text, EveryBodyHasItsName) {
  for (const std::string_view name : kBodyNames) {
    const auto body = body_named(name);
    ASSERT_TRUE(body) << name;
    EXPECT_EQ(body_name(*body), name);
  }
  EXPECT_FALSE(body_named("matmull"));
}

}  // namespace
}  // namespace fpdt
