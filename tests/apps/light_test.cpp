// What the programs load before they do anything: no library of a device or of a network.
#include <string>

#include "command_line.h"

namespace fpdt::test {
namespace {

TEST_F(CommandLine, ProgramsStartWithoutLibrariesOfDevices) {
  for (const char* program : {"$RUN", "$PLAN"}) {
    // As ldd asks.
    const Outcome loaded = shell(std::string("LD_TRACE_LOADED_OBJECTS=1 ") + program);
    ASSERT_NE(loaded.out.find("libc.so"), std::string::npos) << loaded.out << loaded.err;
    for (const char* library : {"cublas", "cudnn", "cudart", "libcuda", "nccl", "mpi"}) {
      EXPECT_EQ(loaded.out.find(library), std::string::npos) << program << ":\n" << loaded.out;
    }
  }
}

}  // namespace
}  // namespace fpdt::test
