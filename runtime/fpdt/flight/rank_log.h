// Writes what a process says to a file instead of standard error.
//
// The file takes the place of the descriptor, so it also gets what libraries say, and the last
// words of a process that an assertion or a sanitizer ends.
#pragma once

#include <string>

#include "fpdt/io/file.h"

namespace fpdt {

class RankLog {
 public:
  // Creates the file anew. IoError if that is impossible; then standard error stays what it is.
  explicit RankLog(const std::string& path);
  ~RankLog();  // standard error is again what it was
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

 private:
  FileDescriptor before_;
};

}  // namespace fpdt
