// Searches for a shared library, and explains what was tried when none opens.
#include "fpdt/runtime/library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

void split(std::string_view path, std::vector<std::string>& folders) {
  while (!path.empty()) {
    const std::size_t colon = path.find(':');
    if (colon != 0) folders.emplace_back(path.substr(0, colon));
    path.remove_prefix(colon == std::string_view::npos ? path.size() : colon + 1);
  }
}

// Binds functions at their first call: some libraries have ten thousand.
void* open(const std::string& path) { return ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL); }

}  // namespace

Library::Library(const WantedLibrary& wanted) {
  std::vector<std::string> folders;
  const char* const environment = std::getenv("LD_LIBRARY_PATH");
  split(environment == nullptr ? "" : environment, folders);
  split(wanted.folders, folders);
  std::string failures;  // of files that exist but do not open
  for (const std::string& folder : folders) {
    path_ = fmt::format("{}/{}", folder, wanted.file);
    if (::access(path_.c_str(), F_OK) != 0) continue;
    handle_ = open(path_);
    if (handle_ != nullptr) return;
    failures += fmt::format("; {}", ::dlerror());
  }
  path_ = wanted.file;
  handle_ = open(path_);
  if (handle_ != nullptr) return;
  const std::string last = ::dlerror();
  throw InputError(fmt::format(
      "{} {} could not be loaded: looked for {} in {}{}where the system keeps libraries ({}){}; "
      "install it, or name its folder in LD_LIBRARY_PATH",
      wanted.name, wanted.version, wanted.file, fmt::join(folders, ", "),
      folders.empty() ? "" : " and ", last, failures));
}

Library::Symbol Library::find(const char* name) const {
  if (handle_ == nullptr) return Symbol(nullptr);
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr) {
    throw InputError(fmt::format("{} has no function {}: another version is needed", path_, name));
  }
  return Symbol(address);
}

}  // namespace fpdt
