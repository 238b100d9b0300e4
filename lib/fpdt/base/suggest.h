// The nearest known word to a misspelt one, for error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fpdt {

// The candidate with the least edit distance, if it differs in at most two letters or a third of
// the word; else "". Returns "" for words of over 64 letters and lists of over 4096 candidates.
std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace fpdt
