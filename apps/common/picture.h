// Pictures, for both programs: the flags that say how they look, and their files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/report/curve_svg.h"
#include "fpdt/report/residency_svg.h"
#include "fpdt/report/timeline.h"

#include "common/flags.h"

namespace fpdt {

struct PictureFlags {
  std::string theme = "light";
  std::int64_t width = 0, height = 0;  // in pixels; 0: as it comes

  [[nodiscard]] bool sized() const { return width > 0 || height > 0; }
  [[nodiscard]] bool dark() const { return theme == "dark"; }
};

// `asked_by`: the flag that asks for a picture; "" where the verb does.
void add_picture_flags(Options& options, PictureFlags& flags, std::string_view asked_by = "");

// The same for curves, which `--draw` asks for.
void add_curve_flags(Options& options, PictureFlags& flags);

// The same for pictures that have one shape.
void add_look_flags(Options& options, PictureFlags& flags);

// Whether `path` ends as a picture does.
bool names_picture(const std::string& path);
// InputError when it does not; the flag names it.
void require_picture(std::string_view flag, const std::string& path);
// The same, for pictures that nothing moves in: .svg and .png.
void require_still(std::string_view flag, const std::string& path);
// InputError when the flags contradict each other, or the kind of file that `path` names.
void require_sensible(const PictureFlags& flags, const std::string& path);

// Writes .html, .svg or .png. InputError if the height is too small for lanes or curves.
void write_picture(const std::string& path, const TimelinePicture& picture,
                   const PictureFlags& flags);
void write_picture(const std::string& path, const CurvePicture& picture, const PictureFlags& flags);
// Writes .svg or .png.
void write_picture(const std::string& path, const ResidencyPicture& picture,
                   const PictureFlags& flags);

// Writes a file with a program that reads `text` from the file that is its last argument. The
// Debian package has the program.
void convert(const std::string& text, std::vector<std::string> words, const std::string& path,
             std::string_view package);

}  // namespace fpdt
