// A message of a fixed size that processes send each other beside the data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace fpdt {

struct Notice {
  enum class Kind : std::int32_t {
    failure,   // of `process`, with its exit code and its cause
    question,  // how far are you?
    answer,    // so many meetings, and waiting there for so long
    arrival,   // at the end of the job, with an exit code
  };
  Kind kind = Kind::failure;
  std::int32_t process = 0;
  std::int64_t number = 0;     // an exit code, or an answer's count of meetings
  std::int64_t waited_ms = 0;  // in an answer
  std::array<char, 488> text{};

  Notice() = default;
  // Longer texts are cut.
  Notice(Kind kind_, std::int64_t process_, std::int64_t number_, std::string_view words)
      : kind(kind_), process(static_cast<std::int32_t>(process_)), number(number_) {
    std::copy_n(words.begin(), std::min(words.size(), text.size() - 1), text.begin());
  }
};
static_assert(sizeof(Notice) == 512 && std::is_trivially_copyable_v<Notice>);

}  // namespace fpdt
