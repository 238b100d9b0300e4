// Errors to codes, text to descriptors, signals to a flag.
#include "common/command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/base/printable.h"

namespace fpdt {
namespace {

volatile std::sig_atomic_t asked_by = 0;

void note_signal(int signal) { asked_by = signal; }

// The control characters that make lines and columns of a text.
constexpr std::string_view kLayout = "\n\t";

// The value of an environment variable; "" if it is not set.
std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Bold, green or red where the descriptor is a terminal, TERM is not "dumb" and NO_COLOR is not set
// (no-color.org).
std::string toned(Tone tone, std::string_view text, int descriptor) {
  const std::string shown = printable(text);
  if (!understands_escapes(descriptor) || !environment("NO_COLOR").empty()) return shown;
  constexpr std::array<std::string_view, 3> kCodes{"1", "1;32", "1;31"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(tone)], shown);
}

void print_raw(std::string_view text) {
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) return;  // `| head` has what it wants
    throw IoError(fmt::format("standard output: {}", std::strerror(errno)));
  }
}

}  // namespace

int guarded(std::string_view program, const Command& command) {
  try {
    return command();
  } catch (...) {
    const Error error = current_error();
    const std::string name = fmt::format("{}:", program);
    std::string_view text = error.what();
    while (text.ends_with('\n')) text.remove_suffix(1);  // a list of findings ends its last line
    say(fmt::format(" {}\n", text), toned(Tone::bad, name, STDERR_FILENO));
    return static_cast<int>(error.code());
  }
}

void print_result(std::string_view text) { print_raw(printable(text, kLayout)); }

void print_result(Tone tone, std::string_view word, std::string_view text) {
  print_raw(toned(tone, word, STDOUT_FILENO) + printable(text, kLayout));
}

bool understands_escapes(int descriptor) {
  return isatty(descriptor) == 1 && environment("TERM") != "dumb";
}

std::size_t output_columns() {
  constexpr std::size_t kUsual = 100, kLeast = 60, kMost = 160;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return kUsual;
  if (size.ws_col == 0) return kUsual;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

void say(std::string_view text, std::string_view before, std::string_view after) {
  const std::string all = fmt::format("{}{}{}", before, printable(text, kLayout), after);
  std::fwrite(all.data(), 1, all.size(), stderr);
  std::fflush(stderr);
}

bool speaks_for_job() {
  // `mpirun A : B` gives its parts flags of their own.
  const std::string_view parts = environment("OMPI_NUM_APP_CTX");
  if (!parts.empty() && parts != "1") return true;
  // A pod of several may have RANK without a launcher. srun starts the daemons of mpirun and
  // torchrun, so its number comes last.
  const bool torchrun = !environment("LOCAL_RANK").empty();
  for (const std::string_view rank :
       {environment("OMPI_COMM_WORLD_RANK"), environment("PMIX_RANK"),
        torchrun ? environment("RANK") : "", environment("SLURM_PROCID")}) {
    if (!rank.empty()) return rank == "0";
  }
  return true;
}

std::int64_t launched_processes() {
  const bool torchrun = !environment("LOCAL_RANK").empty();
  for (const std::string_view text :
       {environment("OMPI_COMM_WORLD_SIZE"), torchrun ? environment("WORLD_SIZE") : "",
        environment("SLURM_STEP_NUM_TASKS")}) {
    std::int64_t processes = 0;
    std::from_chars(text.data(), text.data() + text.size(), processes);
    if (processes > 0) return processes;
  }
  return 1;
}

void prepare_process() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // A large checkpoint has hundreds of files, which are open together while it is read.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // Open takes the lowest free number. Output that is closed is held for reading: it stays an error
  // to write a result there.
  while (true) {
    const int held = ::open("/dev/null", O_RDONLY);
    if (held > STDERR_FILENO) ::close(held);
    if (held < 0 || held > STDERR_FILENO) return;
  }
}

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void catch_finish_signal() {
  static_assert(kFinishSignal == SIGUSR2);
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(kFinishSignal, &action, nullptr);
}

int stop_signal() { return asked_by; }

}  // namespace fpdt
