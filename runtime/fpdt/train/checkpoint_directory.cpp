// Replaces a checkpoint by renames. A kill between any two of them leaves a whole checkpoint.
#include "fpdt/train/checkpoint_directory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/io/json.h"
#include "fpdt/train/trainer_file.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrainerName = "trainer.json";

std::string stage_of(const std::string& directory) { return directory + "/fpdt_stage"; }

std::string new_of(const std::string& directory) {
  const fs::path full(directory);
  return (full.parent_path() / fmt::format(".{}.fpdt_new", full.filename().string())).string();
}

std::vector<std::string> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw IoError(fmt::format("{}: cannot list: {}", directory, error.message()));
  return names;
}

bool is_trainer_file(const std::string& path) {
  if (!exists(path)) return false;
  try {
    FileFindings findings(path);
    return parse_json(read_file(path, kTrainerFileMax), findings).find("fpdt_checkpoint") !=
           nullptr;
  } catch (const InputError&) {
    return false;
  }
}

void remove_directory(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError(fmt::format("{}: cannot remove: {}", path, error.message()));
}

void rename_to(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(fmt::format("rename to {}", to), from);
}

// Moves a file unless the target exists. An existing target is the user's, and stays.
void move_where_none_is(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST || exists(to)) {
    if (::unlink(from.c_str()) != 0) throw_errno("remove", from);
    return;
  }
  rename_to(from, to);  // the file system does not know the flag
}

// Removes files of earlier checkpoints that the one in the directory does not have.
void remove_superseded(const std::string& directory) {
  const auto current = find_trainer_file(fmt::format("{}/{}", directory, kTrainerName));
  if (!current) return;
  const std::vector<std::string> keep = files_of(*current);
  for (const std::string& name : names_in(directory)) {
    if (!is_checkpoint_file(name) || std::find(keep.begin(), keep.end(), name) != keep.end()) {
      continue;
    }
    const std::string path = fmt::format("{}/{}", directory, name);
    if (::unlink(path.c_str()) != 0) throw_errno("remove", path);
  }
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::string path, bool resumed) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  enter(resumed);
}

CheckpointDirectory::~CheckpointDirectory() {
  std::error_code ignored;
  if (is_still_here()) fs::remove_all(stage_of(home_), ignored);
  if (home_ != path_) ::rmdir(home_.c_str());  // only removes it if it is empty
}

void CheckpointDirectory::enter(bool resumed) {
  home_ = exists(path_) ? path_ : new_of(path_);
  if (home_ != path_ && ::mkdir(home_.c_str(), 0777) != 0 && errno != EEXIST) {
    throw_errno("make a directory for", path_);
  }
  lock_ = FileDescriptor(::open(home_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock_.get() < 0 && (errno == ENOTDIR || errno == ENOENT)) require_ours();
  if (lock_.get() < 0) throw_errno("open", home_);
  // If the file system has no locks, keeping two runs apart is up to the user.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw InputError(fmt::format("{}: another run is saving to it; name another directory", path_));
  }
  require_ours();
  if (::access(home_.c_str(), W_OK | X_OK) != 0) throw_errno("write to the directory", home_);
  remove_directory(stage_of(home_));
  // No reader looks there. A kill came before the directory got its name.
  if (home_ != path_) remove_directory(pending(home_));
  pending_ = exists(pending(home_));
  // A kill interrupted the move of these files into DIR. They were proven, so the rest follows.
  if (pending_ && !is_whole(pending(home_))) promote();
  if (!pending_ || resumed) return;
  throw InputError(
      fmt::format("{0}: holds a checkpoint that no step has proven, from a run that "
                  "was stopped; continue from it with --resume {0}, or remove {1}",
                  path_, pending(path_)));
}

void CheckpointDirectory::require_ours() const {
  std::error_code ignored;
  bool is_ours = fs::is_directory(home_, ignored);
  if (is_ours && !is_trainer_file(file(home_, kTrainerName))) {
    const std::vector<std::string> names = names_in(home_);
    is_ours = std::all_of(names.begin(), names.end(),
                          [](const std::string& name) { return name == "fpdt_stage"; });
  }
  if (is_ours) return;
  throw InputError(
      fmt::format("{}: exists and is not a checkpoint; name a directory that does not", path_));
}

// False if somebody moved the directory away to keep its contents.
bool CheckpointDirectory::is_still_here() const {
  struct stat locked {};
  struct stat named {};
  return ::fstat(lock_.get(), &locked) == 0 && ::stat(home_.c_str(), &named) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

std::string CheckpointDirectory::begin() {
  if (!is_still_here()) enter(false);
  const std::string stage = stage_of(home_);
  remove_directory(stage);
  if (::mkdir(stage.c_str(), 0777) != 0) throw_errno("make the directory", stage);
  return stage;
}

void CheckpointDirectory::finish() {
  FPDT_ASSERT(!pending_ && is_whole(stage_of(home_)));
  sync_directory(stage_of(home_));
  rename_to(stage_of(home_), pending(home_));
  sync_directory(home_);
  if (home_ != path_) {
    rename_to(home_, path_);  // fails without loss if a non-empty one has appeared there
    home_ = path_;
    sync_directory(fs::path(path_).has_parent_path() ? fs::path(path_).parent_path() : ".");
  }
  pending_ = true;
}

void CheckpointDirectory::confirm() {
  if (pending_ && is_still_here()) promote();
  pending_ = false;
}

void CheckpointDirectory::reject() {
  if (pending_ && is_still_here()) {
    remove_directory(stage_of(home_));
    rename_to(pending(home_), stage_of(home_));
    sync_directory(home_);
    remove_directory(stage_of(home_));
    ::rmdir(home_.c_str());  // removes it if this was the first checkpoint
  }
  pending_ = false;
}

void CheckpointDirectory::promote() {
  const std::string from = pending(home_);
  std::vector<std::string> names = names_in(from);
  std::partition(names.begin(), names.end(), [](const auto& name) { return name == kTrainerName; });
  for (const std::string& name : names) {
    const auto move = is_checkpoint_file(name) ? rename_to : move_where_none_is;
    move(fmt::format("{}/{}", from, name), fmt::format("{}/{}", home_, name));
  }
  sync_directory(home_);
  remove_superseded(home_);
  if (::rmdir(from.c_str()) != 0) throw_errno("remove", from);
  sync_directory(home_);
  pending_ = false;
}

std::string CheckpointDirectory::file(const std::string& directory, std::string_view name) {
  std::string newest = fmt::format("{}/{}", pending(directory), name);
  return exists(newest) ? newest : fmt::format("{}/{}", directory, name);
}

// All files come in one rename, and trainer.json is the first to leave.
bool CheckpointDirectory::is_whole(const std::string& pending) {
  return exists(fmt::format("{}/{}", pending, kTrainerName));
}

std::string CheckpointDirectory::pending(const std::string& directory) {
  return directory + "/fpdt_pending";
}

}  // namespace fpdt
