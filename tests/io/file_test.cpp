// Files appear whole or not at all, and every error names the file and the reason.
#include "fpdt/io/file.h"

#include <array>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

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
  EXPECT_THAT(input_error([&] { static_cast<void>(read_file(big, 4)); }),
              HasSubstr("expected at most 4 bytes, found 5"));
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

TEST(AtomicFile, RemovesWhatAKilledProcessLeft) {
  const ScratchDirectory scratch;
  const AtomicFile busy(scratch.file("x"));
  const std::string left = scratch.write(".x.4711.0", "half");
  const std::string other = scratch.write(".x.y.4711.0", "half");
  const std::string fresh = scratch.write(".x.4711", "no temporary");
  std::filesystem::create_directory(scratch.file(".x.4712.0"));
  std::filesystem::create_symlink(other, scratch.file(".x.4713.0"));
  write_file_atomically(scratch.file("x"), "whole");
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(other));  // for another path
  EXPECT_TRUE(std::filesystem::exists(fresh));
  EXPECT_EQ(scratch.entries(), 6U);  // x, the busy one, and the files that are not ours
  EXPECT_EQ(read_file(scratch.file("x"), 10), "whole");
}

// Without the check root would replace a device by a file.
TEST(AtomicFile, ReplacesOnlyRegularFiles) {
  const ScratchDirectory scratch;
  const std::string fifo = scratch.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/full"), scratch.file(".")}) {
    EXPECT_THROW(AtomicFile{path}, IoError) << path;
  }
  EXPECT_FALSE(std::filesystem::is_regular_file(fifo));
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

}  // namespace
}  // namespace fpdt::test
