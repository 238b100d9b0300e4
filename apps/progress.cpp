// Terminal or not.
#include "progress.h"

#include <cstdint>
#include <cstdio>
#include <unistd.h>

#include <fmt/format.h>

namespace fpdt {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::milliseconds kElsewhere{5000};

}  // namespace

std::string format_clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours == 0) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
}

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now()) {}

void StatusLine::show(std::string_view text) {
  if (Clock::now() < next_) return;
  next_ = Clock::now() + (terminal_ ? kOnTerminal : kElsewhere);
  if (!terminal_) return keep(text);
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
  open_ = true;
}

void StatusLine::keep(std::string_view text) {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
  open_ = false;
  fmt::print(stderr, "{}\n", text);
}

void StatusLine::end() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace fpdt
