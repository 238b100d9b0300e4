// Replaces the colours of papers and inks, each of which has one in the dark.
#include "fpdt/report/theme.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <utility>

namespace fpdt {
namespace {

struct Shade {
  std::string_view light;
  std::string_view dark;
};
constexpr std::array<Shade, 9> kCurveShades{{
    {"#0072B2", "#56A8E0"},
    {"#D55E00", "#F28C3F"},
    {"#009E73", "#2FC89B"},
    {"#CC79A7", "#E39CC4"},
    {"#E69F00", "#F2C14E"},
    {"#56B4E9", "#9FD8FF"},
    {"#7A4B1E", "#B98A5E"},
    {"#6A4FB3", "#AE9BE8"},
    {"#7C8500", "#BFC94A"},
}};
constexpr std::array<Shade, 13> kShades{{
    {"#FFFFFF", "#14181E"},  // page
    {"#F7F9FB", "#1B2028"},  // paper behind a plot
    {"#F0F3F6", "#262D37"},  // a lane
    {"#DCE3EA", "#38414D"},  // calls
    {"#C9D3DD", "#465161"},  // every second call
    {"#D9DEE4", "#323A45"},  // rules
    {"#9AA5B1", "#7B8794"},  // marks of the time axis
    {"#616E7C", "#A3AEBA"},  // soft ink
    {"#52606D", "#B4BEC9"},  // subtitles
    {"#3E4C59", "#9AA5B1"},  // the shade of what is drawn in detail
    {"#1F2933", "#EDF1F5"},  // ink
    {"#111111", "#F5F7FA"},  // lines on areas
    {"#C4320A", "#FF7A4D"},  // alarm
}};

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::toupper(x) == std::toupper(y);
  });
}

std::string shaded(std::string picture, std::span<const Shade> shades) {
  constexpr std::size_t kLength = 7;
  for (std::size_t at = picture.find('#'); at != std::string::npos;
       at = picture.find('#', at + 1)) {
    const std::string_view color = std::string_view(picture).substr(at, kLength);
    const auto shade = std::find_if(shades.begin(), shades.end(),
                                    [&](const Shade& one) { return same(one.light, color); });
    if (shade != shades.end()) picture.replace(at, kLength, shade->dark);
  }
  return picture;
}

}  // namespace

std::string in_theme(std::string picture, Theme theme) {
  return theme == Theme::light ? picture : shaded(std::move(picture), kShades);
}

std::string curves_in_theme(std::string picture, Theme theme) {
  if (theme == Theme::light) return picture;
  return shaded(shaded(std::move(picture), kShades), kCurveShades);
}

}  // namespace fpdt
