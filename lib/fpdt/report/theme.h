// Light and dark pictures.
#pragma once

#include <cstdint>
#include <string>

namespace fpdt {

enum class Theme : std::uint8_t { light, dark };

// A picture of timeline_svg or timeline_html in a theme. Papers and inks change; parts of memory
// and kinds of op keep their colours.
std::string in_theme(std::string picture, Theme theme);

}  // namespace fpdt
