// A writer of Python's pickle format, protocol 2 (PEP 307): only the opcodes that dictionaries,
// lists, integers and texts need. Loading the result runs no code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace fpdt {

class Pickle {
 public:
  Pickle();

  // Values. A repeated text is written as a reference to the first.
  void integer(std::int64_t value);
  void boolean(bool value);
  void text(std::string_view value);
  // begin_..., then alternating keys and values (or values only), then end_....
  void begin_dictionary();
  void end_dictionary();
  void begin_list();
  void end_list();
  // Within a list, appends the values so far. For lists of many thousands.
  void next_batch();
  void tuple(std::int64_t first, std::int64_t second);

  // The next key of a dictionary.
  void key(std::string_view name) { text(name); }

  [[nodiscard]] std::string finish() const;

 private:
  void append(std::uint64_t value, int bytes);
  std::string bytes_;

  // Lets a string_view look up a string without a copy.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> memo_;
};

}  // namespace fpdt
