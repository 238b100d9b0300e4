// Light and dark pictures.
#pragma once

#include <cstdint>
#include <string>

namespace fpdt {

enum class Theme : std::uint8_t { light, dark };

// A picture of a step in a theme. Papers and inks change; parts of memory and kinds of op keep
// their colours.
std::string in_theme(std::string picture, Theme theme);
// A picture of curves: theirs become lighter in the dark, where names and numbers have them.
std::string curves_in_theme(std::string picture, Theme theme);

}  // namespace fpdt
