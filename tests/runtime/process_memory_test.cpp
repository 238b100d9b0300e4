// The system's numbers about this process, and about a file that looks like it.
#include "fpdt/runtime/process_memory.h"

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fpdt/runtime/arena.h"

namespace fpdt {
namespace {

TEST(ProcessMemory, IsReadByItsNames) {
  const std::string path = testing::TempDir() + "fpdt_status." + std::to_string(getpid());
  std::ofstream(path) << "Name:\ttest\nVmPeak:\t 900 kB\nVmLck:\t  16 kB\nVmPin:\t   8 kB\n"
                      << "VmHWM:\t 700 kB\nVmRSS:\t 600 kB\nThreads:\t1\n";
  const ProcessMemory memory = process_memory(path);
  EXPECT_EQ(memory.resident, Bytes{600 * 1024});
  EXPECT_EQ(memory.locked, Bytes{16 * 1024});
  EXPECT_EQ(memory.pinned, Bytes{8 * 1024});
  std::remove(path.c_str());
  EXPECT_EQ(process_memory(path).resident, Bytes{0});
}

// Locked memory is resident, both of the range and of the process.
TEST(ProcessMemory, GrowsByWhatIsLocked) {
  const Bytes size{64 * page_bytes().value};
  const auto length = static_cast<std::size_t>(size.value);
  void* const place =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  const std::span<const std::byte> range{static_cast<const std::byte*>(place), length};
  EXPECT_EQ(resident_bytes(range), Bytes{0});
  const ProcessMemory before = process_memory();
  EXPECT_GT(before.resident, Bytes{0});
  // A direct system call, because a sanitizer replaces mlock by nothing.
  if (::syscall(SYS_mlock, place, length) != 0) {
    ::munmap(place, length);
    GTEST_SKIP() << "the system locks no memory for this user";
  }
  EXPECT_EQ(resident_bytes(range), size);
  EXPECT_EQ(process_memory().locked, before.locked + size);
  ::munmap(place, length);
  EXPECT_EQ(process_memory().locked, before.locked);
}

}  // namespace
}  // namespace fpdt
