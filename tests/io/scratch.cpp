// Scratch directories under the system's temporary directory.
#include "scratch.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <stdlib.h>

#include "fpdt/base/error.h"

namespace fpdt::test {
namespace {

namespace fs = std::filesystem;

template <class Kind>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  path_ = (fs::temp_directory_path() / "fpdt_io_test.XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no scratch directory");
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ScratchDirectory::file(std::string_view name) const {
  return (fs::path(path_) / name).string();
}

std::string ScratchDirectory::write(std::string_view name, std::string_view text) const {
  std::ofstream(file(name), std::ios::binary) << text;
  return file(name);
}

std::size_t ScratchDirectory::entries() const {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path_)) ++count;
  return count;
}

std::string input_error(const std::function<void()>& call) { return message_of<InputError>(call); }

std::string io_error(const std::function<void()>& call) { return message_of<IoError>(call); }

std::string source_path(std::string_view name) { return FPDT_SOURCE_DIR "/" + std::string(name); }

}  // namespace fpdt::test
