// What the programs say to flags that lack their value or stand twice, and of themselves.
#include <regex>
#include <sstream>
#include <string>

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

// Of the processes of a job, which all have the same flags, the first says what is wrong.
TEST_F(Flags, OneProcessOfAJobReportsThem) {
  const auto says_it = [&](const std::string& launcher) {
    const Outcome result = shell("env " + launcher + " \"$RUN\" train --stepz 3");
    EXPECT_EQ(result.code, 2) << launcher;
    EXPECT_EQ(result.out, "") << launcher;
    EXPECT_EQ(result.err.empty(), !says(result.err, "--stepz: no such flag")) << result.err;
    return !result.err.empty();
  };
  EXPECT_TRUE(says_it(""));
  for (const std::string rank :
       {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "LOCAL_RANK=0 RANK=", "SLURM_PROCID="}) {
    EXPECT_TRUE(says_it(rank + "0")) << rank;
    EXPECT_FALSE(says_it(rank + "1")) << rank;
  }
  // Slurm counts the daemons of other launchers.
  EXPECT_TRUE(says_it("OMPI_COMM_WORLD_RANK=0 SLURM_PROCID=1"));
  EXPECT_FALSE(says_it("LOCAL_RANK=0 RANK=2 SLURM_PROCID=0"));
  // No launcher, and parts of a job with flags of their own.
  EXPECT_TRUE(says_it("RANK=3 WORLD_SIZE=4"));
  EXPECT_TRUE(says_it("OMPI_COMM_WORLD_RANK=1 OMPI_NUM_APP_CTX=2"));
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

TEST_F(Flags, ManualsAndCompletionsKnowEveryFlag) {
  for (const std::string program : {"$PLAN", "$RUN"}) {
    const Outcome manual = shell(program + " --man");
    EXPECT_EQ(manual.code, 0);
    EXPECT_TRUE(manual.out.starts_with(".TH FPDT")) << manual.out;
    EXPECT_TRUE(says(manual.out, "\n.SH EXIT STATUS\n"));
    EXPECT_TRUE(says(manual.out, program == "$PLAN" ? "\\-\\-seq\\-len" : "\\-\\-steps"));
  }
  // As bash completes a line, after it has read the script.
  const auto completed = [&](const std::string& words, int word) {
    write("complete.sh",
          "source <(\"$PLAN\" --completion)\nfpdt-plan() { \"$PLAN\" \"$@\"; }\n"
          "COMP_WORDS=(" +
              words + ") COMP_CWORD=" + std::to_string(word) +
              "\n_fpdt_plan\necho \"${COMPREPLY[@]}\"\n");
    return shell("export PLAN; bash complete.sh").out;
  };
  EXPECT_EQ(completed("fpdt-plan sw", 1), "sweep\n");
  EXPECT_EQ(completed("fpdt-plan search --seq", 2), "--seq-len\n");
  EXPECT_EQ(completed("fpdt-plan search --model llama3-", 3), "llama3-70b llama3-8b\n");
}

TEST_F(Flags, OnlyTerminalsGetColours) {
  const std::string search = "$PLAN search --model model.yaml --cluster timed.yaml --seq-len 64";
  EXPECT_FALSE(says(shell(search).out, "\x1b["));
  const auto on_terminal = [&](const std::string& before, const std::string& command) {
    return shell("export PLAN; " + before + " script -qec '" + command + "' /dev/null").out;
  };
  EXPECT_TRUE(says(on_terminal("TERM=xterm", search), "\x1b[1;32mFITS:\x1b[0m tiny"));
  EXPECT_TRUE(says(on_terminal("TERM=xterm", search + "x"), "\x1b[1;31mfpdt-plan:\x1b[0m"));
  // A search of over two seconds shows and erases its progress, without a colour.
  EXPECT_FALSE(says(on_terminal("TERM=xterm NO_COLOR=1", search), "\x1b[1"));
  EXPECT_FALSE(says(on_terminal("TERM=dumb", search), "\x1b["));
}

TEST_F(Flags, TablesKeepToTheTerminal) {
  const Outcome shown = shell("export PLAN; script -qec 'stty cols 80; $PLAN list' /dev/null");
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_TRUE(says(shown.out, "llama3-8b"));
  std::istringstream lines(shown.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U + 1) << line;  // and the carriage return of a terminal
  }
}

}  // namespace
}  // namespace fpdt::test
