// Words of enums. An enum that appears in a file or on the command line has one table beside it,
//
//   constexpr auto words_of(Role) { return word_list("state", "input"); }
//
// in the order of its enumerators. Printers, parsers and suggestions all read that table.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace fpdt {

template <class... Text>
constexpr std::array<std::string_view, sizeof...(Text)> word_list(const Text&... words) {
  return {words...};
}

template <class E>
concept HasWords = requires(E e) {
  words_of(e);
};

// All words of an enum, in order.
template <HasWords E>
constexpr auto words() {
  return words_of(E{});
}

template <HasWords E>
constexpr std::string_view word(E e) {
  return words<E>()[static_cast<std::size_t>(e)];
}

template <HasWords E>
constexpr std::optional<E> parse_word(std::string_view text) {
  for (std::size_t i = 0; i < words<E>().size(); ++i) {
    if (words<E>()[i] == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

// The enumerator of another enum that has the same word, which there must be.
template <HasWords To, HasWords From>
constexpr To same_word(From value) {
  return parse_word<To>(word(value)).value();
}

}  // namespace fpdt
