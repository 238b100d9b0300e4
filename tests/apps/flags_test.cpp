// What the programs say to flags that lack their value or stand twice, and of themselves.
#include <regex>

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

TEST_F(Flags, VersionNamesTheProgramAndItsBuild) {
#ifdef FPDT_WITH_CUDA
  const std::string built = "built with CUDA [0-9.]+, with(out)? NCCL.*, with(out)? .*MPI.*";
#else
  const std::string built = "built without CUDA, without NCCL, with(out)? .*MPI.*";
#endif
  for (const std::string name : {"fpdt-run", "fpdt-plan"}) {
    const Outcome result = shell(name == "fpdt-run" ? "$RUN --version" : "$PLAN --version");
    EXPECT_EQ(result.code, 0);
    EXPECT_TRUE(std::regex_match(result.out,
                                 std::regex(name + " [0-9]+[.][0-9]+[.][0-9]+, " + built + "\n")))
        << result.out;
    EXPECT_EQ(result.err, "");
  }
}

}  // namespace
}  // namespace fpdt::test
