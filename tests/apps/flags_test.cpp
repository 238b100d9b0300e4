// What the programs say to flags that lack their value or stand twice.
#include "command_line.h"

namespace fpdt::test {
namespace {

using Flags = CommandLine;

TEST_F(Flags, TakeOneValue) {
  struct Wrong {
    std::string_view command, message;
  };
  for (const Wrong& wrong :
       {Wrong{"$RUN train plan/schedule.json --steps 1 --data", "--data needs a value\n"},
        {"$RUN train plan/schedule.json --data text.txt --steps", "--steps needs a value\n"},
        {"$RUN train plan/schedule.json --data text.txt --steps 1 --steps 2",
         "--steps may be given only once\n"},
        {"$PLAN sweep --over", "--over needs a value\n"},
        {"$PLAN compare --with strategy.yaml --with", "--with needs a value\n"}}) {
    const Outcome result = shell(wrong.command);
    EXPECT_EQ(result.code, 2) << wrong.command;
    EXPECT_TRUE(result.err.starts_with(wrong.message)) << result.err;
  }
}

}  // namespace
}  // namespace fpdt::test
