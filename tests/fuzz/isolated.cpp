// Isolates work with fork and wait4.
#include "isolated.h"

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace fpdt::fuzz {

Ending isolated(const std::function<int()>& work, unsigned seconds) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    std::signal(SIGALRM, SIG_DFL);
    alarm(seconds);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    _exit(work());
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child) {
    throw std::system_error(errno, std::generic_category(), "wait4");
  }
  Ending ending;
  ending.seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  ending.mebibytes = static_cast<double>(usage.ru_maxrss) / 1024;
  if (WIFSIGNALED(status)) {
    ending.kind = WTERMSIG(status) == SIGALRM ? Ending::Kind::hung : Ending::Kind::crashed;
  } else {
    ending.code = WEXITSTATUS(status);
    // A sanitizer's report ends a process with code 1, an assertion ends it by a signal.
    if (ending.code >= 64) ending.kind = Ending::Kind::crashed;
  }
  return ending;
}

}  // namespace fpdt::fuzz
