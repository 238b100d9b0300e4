// One descriptor for another.
#include "fpdt/flight/rank_log.h"

#include <fcntl.h>
#include <unistd.h>

namespace fpdt {

RankLog::RankLog(const std::string& path) {
  ::unlink(path.c_str());  // a hung process may still write the file of this name
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.get() < 0) throw_errno("create", path);
  before_ = FileDescriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO));
  if (before_.get() < 0 || ::dup2(file.get(), STDERR_FILENO) < 0) throw_errno("write to", path);
}

RankLog::~RankLog() { ::dup2(before_.get(), STDERR_FILENO); }

}  // namespace fpdt
