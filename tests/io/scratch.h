// Shared by tests of files: a directory that is removed afterwards, and errors as text.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fpdt::test {

class ScratchDirectory {
 public:
  ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const;
  // Writes a file and returns its path.
  [[nodiscard]] std::string write(std::string_view name, std::string_view text) const;
  // The number of entries in it, with hidden files.
  [[nodiscard]] std::size_t entries() const;

 private:
  std::string path_;
};

// The message of the InputError or IoError that the call throws; "" when it throws nothing.
std::string input_error(const std::function<void()>& call);
std::string io_error(const std::function<void()>& call);

std::string source_path(std::string_view name);

}  // namespace fpdt::test
