// A status line on standard error: rewritten in place on a terminal, else a line every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace fpdt {

// The clock to use: the steady clock, or that of a test.
using Now = std::chrono::steady_clock::time_point (*)();

// "1:02:03", "12:03", "0:07".
std::string format_clock(double seconds);

class StatusLine {
 public:
  enum class Shown : std::uint8_t { everywhere, on_terminals, nowhere };
  // `after`: shows nothing before so much time has passed.
  explicit StatusLine(Shown shown = Shown::everywhere, std::chrono::milliseconds after = {},
                      Now now = &std::chrono::steady_clock::now);
  ~StatusLine() { end(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Shows the text now, or drops it when the last one is too recent.
  void show(std::string_view text);
  // Shows the text in any case, on a line that stays.
  void keep(std::string_view text);
  // Leaves the last text on its line.
  void end();
  // Removes the last text; the next comes as soon as it is shown.
  void erase();

 private:
  Now now_;
  bool terminal_;
  Shown shown_;
  bool open_ = false;  // the cursor stands on the status line
  std::chrono::steady_clock::time_point next_;
};

}  // namespace fpdt
