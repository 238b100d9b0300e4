// Shows what long planning does at the moment, on a line of the terminal, until the result comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "fpdt/plan/search/search.h"

#include "common/progress.h"

namespace fpdt {

class Watch {
 public:
  // Short work shows nothing.
  explicit Watch(std::chrono::milliseconds after = std::chrono::seconds(2),
                 Now now = &std::chrono::steady_clock::now);
  ~Watch() { hide(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Names the work from now on: "search", or "seq-len 512K, 4 of 9" for a part, counted from 1.
  // From the second part on, it estimates the time that all parts still take.
  void begin(const std::string& what);
  void begin(const std::string& what, std::int64_t part, std::int64_t parts);
  // Shows the progress of that work. It must not outlive the watch.
  OnProgress listener();
  // Removes the line, for a result that is printed now.
  void hide() { line_.erase(); }

 private:
  [[nodiscard]] double seconds_since(std::chrono::steady_clock::time_point begin) const;
  void begin_at(const std::string& what, std::optional<double> left);
  void show(const std::string& how_far);
  [[nodiscard]] std::string detail(const SearchProgress& progress);

  Now now_;
  StatusLine line_;
  std::chrono::steady_clock::time_point first_;  // when the first part began
  std::chrono::steady_clock::time_point began_;  // when this work began
  std::optional<double> left_;                   // seconds of all parts from `began_` on
  std::string what_;
  std::int64_t pass_ = 0;  // of a search
};

}  // namespace fpdt
