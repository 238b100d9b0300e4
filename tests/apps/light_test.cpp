// The programs load no library of a device or a network before they do anything.
#include <string>

#include "command_line.h"

namespace fpdt::test {
namespace {

TEST_F(CommandLine, ProgramsStartWithoutLibrariesOfDevices) {
  for (const char* program : {"$RUN", "$PLAN"}) {
    // As ldd does.
    const Outcome loaded = shell(std::string("LD_TRACE_LOADED_OBJECTS=1 ") + program);
    ASSERT_NE(loaded.out.find("libc.so"), std::string::npos) << loaded.out << loaded.err;
    for (const char* library : {"cublas", "cudnn", "cudart", "libcuda", "nccl", "mpi"}) {
      EXPECT_EQ(loaded.out.find(library), std::string::npos) << program << ":\n" << loaded.out;
    }
  }
}

}  // namespace
}  // namespace fpdt::test
