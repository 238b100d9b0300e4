// Files over POSIX descriptors: every error is checked and names the path.
//
// What is written appears whole or not at all: a temporary in the same directory is written,
// synced, renamed, and the directory synced. Streams are not used, since they lose ENOSPC; neither
// is mmap, since a mapped file that shrinks kills the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fpdt {

// The whole regular file. IoError when it is missing, unreadable or not a regular file; InputError
// when it is over bytes_max.
std::string read_file(const std::string& path, std::int64_t bytes_max);

// An open descriptor; closes itself.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] int release();

 private:
  int descriptor_;
};

// A regular file read at any place.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(std::string path);
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // Fills `bytes` from `offset`; a file that ends before is an IoError.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  std::int64_t size_ = 0;  // before the descriptor, whose opening sets it
  FileDescriptor descriptor_;
};

// A file that appears at `path` when it is committed; destroyed before, it leaves no trace. What a
// killed process left beside is removed by the next for the same path: a temporary is locked as long
// as its process lives.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Bytes that were written already.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  FileDescriptor descriptor_;
};

void write_file_atomically(const std::string& path, std::string_view text);

// A directory that appears at `path` when it is committed, in place of a directory that was there;
// destroyed before, it is removed with its files. What a killed process left of one is removed by
// the next for the same path.
//
// At every moment the old directory or the new one is at `path`, where the file system can exchange
// names (all local ones of Linux); where it cannot (NFS), the old one is at `path`.last for a
// moment.
class StagedDirectory {
 public:
  // `path` may end in a slash or be a link to a directory, which is then what is replaced.
  explicit StagedDirectory(const std::string& path);
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;
  ~StagedDirectory();
  // Where to write the files until then.
  [[nodiscard]] const std::string& stage() const { return stage_; }
  void commit();
  // Where the directory of `path` is: there, or at `path`.last.
  [[nodiscard]] static std::string find(const std::string& path);

 private:
  void replace();

  std::string path_;
  std::string stage_;
  FileDescriptor lock_;  // tells a stage that is in use from one that was left behind
};

// Makes renames inside `directory` durable.
void sync_directory(const std::string& directory);

}  // namespace fpdt
