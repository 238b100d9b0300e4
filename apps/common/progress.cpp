// Terminal or not.
#include "common/progress.h"

#include <unistd.h>

#include <fmt/format.h>

#include "common/command.h"

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

StatusLine::StatusLine(Shown shown, std::chrono::milliseconds after, Now now)
    : now_(now),
      terminal_(understands_escapes(STDERR_FILENO)),
      shown_(shown),
      next_(now() + after) {}

void StatusLine::show(std::string_view text) {
  if (shown_ == Shown::nowhere || now_() < next_) return;
  if (!terminal_ && shown_ == Shown::on_terminals) return;
  next_ = now_() + (terminal_ ? kOnTerminal : kElsewhere);
  if (!terminal_) return keep(text);
  say(text, "\r", "\x1b[K");
  open_ = true;
}

void StatusLine::keep(std::string_view text) {
  open_ = false;
  if (shown_ == Shown::nowhere) return;
  say(fmt::format("{}\n", text), terminal_ ? "\r\x1b[K" : "");
}

void StatusLine::erase() {
  if (open_) {
    say("", "\r\x1b[K");
    next_ = now_();
  }
  open_ = false;
}

void StatusLine::end() {
  if (open_) say("\n");
  open_ = false;
}

}  // namespace fpdt
