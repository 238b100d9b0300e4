// Progress into words, with a clock.
#include "plan/watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "fpdt/base/units.h"

namespace fpdt {
namespace {

// The seconds that even work still takes when `done` of `total` took so long.
double seconds_left(double seconds, std::int64_t done, std::int64_t total) {
  return seconds / static_cast<double>(done) * static_cast<double>(total - done);
}

std::string about(double seconds) {
  return fmt::format(", about {} left", format_clock(std::max(seconds, 0.0)));
}

}  // namespace

Watch::Watch(std::chrono::milliseconds after, Now now)
    : now_(now),
      line_(StatusLine::Shown::on_terminals, after, now),
      first_(now()),
      began_(first_) {}

double Watch::seconds_since(std::chrono::steady_clock::time_point begin) const {
  return std::chrono::duration<double>(now_() - begin).count();
}

void Watch::begin(const std::string& what) { begin_at(what, {}); }

void Watch::begin(const std::string& what, std::int64_t part, std::int64_t parts) {
  std::optional<double> left;
  if (part == 1) first_ = now_();
  if (part > 1) left = seconds_left(seconds_since(first_), part - 1, parts);
  begin_at(fmt::format("{}, {} of {}", what, part, parts), left);
}

void Watch::begin_at(const std::string& what, std::optional<double> left) {
  what_ = what;
  left_ = left;
  began_ = now_();
  pass_ = 0;
  hide();  // so that the line changes now, however recent it is: this work may have no listener
  show("");
}

OnProgress Watch::listener() {
  return [this](const SearchProgress& progress) { show(detail(progress)); };
}

void Watch::show(const std::string& how_far) {
  const double seconds = seconds_since(began_);
  const std::string time =
      left_ ? about(*left_ - seconds) : fmt::format(", {}", format_clock(seconds));
  line_.show(fmt::format("{}{}{}{}", what_, time, how_far.empty() ? "" : ": ", how_far));
}

std::string Watch::detail(const SearchProgress& progress) {
  const auto [stage, done, total, longest] = progress;
  switch (stage) {
    case SearchProgress::Stage::starts:
      if (done == 0) ++pass_;
      return fmt::format("pass {}, {} of {} starting points", pass_, done, total);
    case SearchProgress::Stage::levers:
      return fmt::format("pass {}, {} of {} levers without a gain", pass_, done, total);
    case SearchProgress::Stage::plans:
      return fmt::format("placing plan {} of {}", done + 1, total);
    case SearchProgress::Stage::headroom:
      return fmt::format("dividing memory, attempt {} of {}", done + 1, total);
    case SearchProgress::Stage::lengths:
      return fmt::format("{} lengths tried, {} tokens fit", done, format_tokens(longest));
    case SearchProgress::Stage::rungs:
      return fmt::format("rung {} of {}", done + 1, total);
    case SearchProgress::Stage::worth:
      return fmt::format("lever {} of {}{}", done + 1, total,
                         done > 0 ? about(seconds_left(seconds_since(began_), done, total)) : "");
  }
  return "";
}

}  // namespace fpdt
