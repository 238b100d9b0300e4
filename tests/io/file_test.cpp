// Files appear whole or not at all, and every failure says which file and why.
#include "fpdt/io/file.h"

#include <array>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "scratch.h"

namespace fpdt::test {
namespace {

using ::testing::HasSubstr;

TEST(ReadFile, ReturnsEveryByte) {
  const ScratchDirectory scratch;
  const std::string text("a\0b\r\n\xff", 6);
  EXPECT_EQ(read_file(scratch.write("x", text), 6), text);
  EXPECT_EQ(read_file(scratch.write("empty", ""), 0), "");
}

TEST(ReadFile, RefusesWhatIsNotAFileOfThatSize) {
  const ScratchDirectory scratch;
  const std::string fifo = scratch.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string loop = scratch.file("loop");
  std::filesystem::create_symlink(loop, loop);
  const std::string big = scratch.write("big", "12345");
  const auto error = [](const std::string& path) {
    return io_error([&] { static_cast<void>(read_file(path, 4)); });
  };
  EXPECT_THAT(error(scratch.file("missing")), HasSubstr("missing: cannot open: No such file"));
  EXPECT_THAT(error(scratch.path()), HasSubstr("expected a regular file, found a directory"));
  EXPECT_THAT(error(fifo), HasSubstr("expected a regular file"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("expected a regular file"));
  EXPECT_THAT(error(loop), HasSubstr("cannot open"));
  EXPECT_THAT(error(big), HasSubstr("expected at most 4 bytes, found 5"));
}

TEST(RandomAccessFile, ReadsAnywhereAndStopsAtTheEnd) {
  const ScratchDirectory scratch;
  const RandomAccessFile file(scratch.write("x", "0123456789"));
  std::array<char, 4> piece{};
  file.read(3, std::as_writable_bytes(std::span(piece)));
  EXPECT_EQ(std::string_view(piece.data(), 4), "3456");
  const auto past = [&] { file.read(8, std::as_writable_bytes(std::span(piece))); };
  EXPECT_THAT(io_error(past), HasSubstr("the file ends at byte 10"));
}

TEST(AtomicFile, AppearsAtCommit) {
  const ScratchDirectory scratch;
  const std::string path = scratch.write("x", "old");
  AtomicFile file(path);
  file.write(std::string_view("new "));
  file.write(std::string_view("text"));
  EXPECT_EQ(read_file(path, 100), "old");
  file.commit();
  EXPECT_EQ(read_file(path, 100), "new text");
  EXPECT_EQ(scratch.entries(), 1U);
}

TEST(AtomicFile, LeavesNoTraceWithoutCommit) {
  const ScratchDirectory scratch;
  {
    AtomicFile file(scratch.file("x"));
    file.write(std::string_view("half"));
    EXPECT_EQ(scratch.entries(), 1U);
  }
  EXPECT_EQ(scratch.entries(), 0U);
}

TEST(AtomicFile, NamesTheFileThatItCannotMake) {
  const auto missing = [] { write_file_atomically("/nowhere/at/all.json", "x"); };
  EXPECT_THAT(io_error(missing), HasSubstr("/nowhere/at/all.json: cannot create"));
}

// A file-size limit fails a write as a full disk does: the call reports it, and the old file stays.
TEST(AtomicFile, KeepsTheOldFileWhenTheDiskIsFull) {
  const ScratchDirectory scratch;
  const std::string path = scratch.write("x", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = io_error([&] { write_file_atomically(path, std::string(10000, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  EXPECT_THAT(error, HasSubstr("x: cannot write: File too large"));
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_EQ(scratch.entries(), 1U);
}

TEST(StagedDirectory, AppearsAtCommitAndReplacesNothing) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("step_10");
  {
    StagedDirectory staged(path);
    write_file_atomically(staged.stage() + "/manifest", "1");
    EXPECT_FALSE(std::filesystem::exists(path));
    staged.commit();
  }
  EXPECT_EQ(read_file(path + "/manifest", 10), "1");
  StagedDirectory again(path);
  EXPECT_THAT(io_error([&] { again.commit(); }), HasSubstr("cannot rename a new directory"));
  EXPECT_EQ(read_file(path + "/manifest", 10), "1");
}

TEST(StagedDirectory, LeavesNoTraceWithoutCommit) {
  const ScratchDirectory scratch;
  {
    const StagedDirectory staged(scratch.file("x"));
    write_file_atomically(staged.stage() + "/y", "1");
  }
  EXPECT_EQ(scratch.entries(), 0U);
}

}  // namespace
}  // namespace fpdt::test
