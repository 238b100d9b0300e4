// How pictures look, and what writes them.
#include "common/picture.h"

#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fpdt/io/file.h"
#include "fpdt/report/curve_html.h"
#include "fpdt/report/theme.h"
#include "fpdt/report/timeline_html.h"
#include "fpdt/report/timeline_svg.h"

namespace fpdt {
namespace {

// In pixels. Text of a narrower picture could not be read.
constexpr std::int64_t kNarrowest = 400;
constexpr std::int64_t kWidest = 16000;
constexpr double kUsualWidth = 1400;

std::string kind_of(const std::string& path) { return std::filesystem::path(path).extension(); }

// `html` and `svg` make the text of such a file.
template <class Html, class DrawSvg>
void write_kind(const std::string& path, Html html, DrawSvg svg) {
  const std::string kind = kind_of(path);
  if (kind == ".png") {
    convert(svg(), {"rsvg-convert", "-o", path}, path, "librsvg2-bin");
  } else {
    write_file_atomically(path, kind == ".html" ? html() : svg());
  }
}

Theme theme_of(const PictureFlags& flags) { return flags.dark() ? Theme::dark : Theme::light; }

}  // namespace

void add_picture_flags(Options& options, PictureFlags& flags, std::string_view asked_by) {
  // In fpdt-run the help says which flag goes with it.
  const auto help = [&](std::string_view alone, std::string_view beside) {
    return asked_by.empty() ? std::string(alone) : fmt::format("With {}: {}", asked_by, beside);
  };
  options
      .value("--width", flags.width,
             help("Width of an .svg or .png in pixels; default: 1400",
                  "width of an .svg or .png in pixels; default: 1400"))
      .integer(kNarrowest, kWidest);
  options
      .value("--height", flags.height,
             help("With it the picture is a slide: larger text, and the step alone; such as "
                  "1920 x 1080",
                  "height, which makes the picture a slide: larger text, and the step alone; such "
                  "as 1920 x 1080"))
      .integer(1, kWidest);
  options
      .value("--theme", flags.theme,
             help("Colours of paper and ink", "colours of paper and ink; default: light"))
      .one_of({"light", "dark"});
}

void add_curve_flags(Options& options, PictureFlags& flags) {
  add_look_flags(options, flags);
  options
      .value("--height", flags.height,
             "Its height, such as 1080 of a slide; default: what the curves need")
      .integer(1, kWidest);
}

void add_look_flags(Options& options, PictureFlags& flags) {
  options.value("--width", flags.width, "Width of an .svg or .png in pixels; default: 1400")
      .integer(kNarrowest, kWidest);
  options.value("--theme", flags.theme, "Colours of paper and ink").one_of({"light", "dark"});
}

bool names_picture(const std::string& path) {
  const std::string kind = kind_of(path);
  return kind == ".html" || kind == ".svg" || kind == ".png";
}

void require_picture(std::string_view flag, const std::string& path) {
  if (names_picture(path)) return;
  const std::string svg = std::filesystem::path(path).replace_extension(".svg");
  throw InputError(fmt::format(
      "{} {}: expected a file that ends in .html, .svg or .png, such as {}", flag, path, svg));
}

void require_still(std::string_view flag, const std::string& path) {
  if (names_picture(path) && kind_of(path) != ".html") return;
  const std::string svg = std::filesystem::path(path).replace_extension(".svg");
  throw InputError(
      fmt::format("{} {}: expected a file that ends in .svg or .png, such as {}", flag, path, svg));
}

void require_sensible(const PictureFlags& flags, const std::string& path) {
  if (path.empty() && (flags.sized() || flags.dark())) {
    throw InputError(fmt::format("{} is for a picture: add --draw FILE",
                                 flags.dark() ? "--theme" : "--width or --height"));
  }
  if (flags.sized() && (!names_picture(path) || kind_of(path) == ".html")) {
    throw InputError(fmt::format(
        "--width and --height are for pictures that end in .svg or .png, not for {}", path));
  }
  if (flags.dark() && !names_picture(path)) {
    throw InputError(fmt::format("--theme is for .html, .svg and .png, not for {}", path));
  }
  if (flags.height > 0 && flags.width == 0) {
    throw InputError("--height: expected --width beside it, such as --width 1920 --height 1080");
  }
}

void write_picture(const std::string& path, const TimelinePicture& picture,
                   const PictureFlags& flags) {
  PictureSize size;
  if (flags.width > 0) size.width = static_cast<double>(flags.width);
  if (flags.height > 0) size.height = static_cast<double>(flags.height);
  const Theme theme = theme_of(flags);
  write_kind(
      path, [&] { return in_theme(timeline_html(picture), theme); },
      [&] { return in_theme(timeline_svg(picture, size), theme); });
}

void write_picture(const std::string& path, const CurvePicture& picture,
                   const PictureFlags& flags) {
  CurveSize size;
  if (flags.width > 0) size.width = static_cast<double>(flags.width);
  if (flags.height > 0) size.height = static_cast<double>(flags.height);
  if (const double least = least_height(picture, size.width);
      flags.height > 0 && size.height < least) {
    throw InputError(
        fmt::format("--height {}: the curves need at least {} at that width", flags.height, least));
  }
  const Theme theme = theme_of(flags);
  write_kind(
      path, [&] { return curves_in_theme(curve_html(picture), theme); },
      [&] { return curves_in_theme(curve_svg(picture, size), theme); });
}

void write_picture(const std::string& path, const ResidencyPicture& picture,
                   const PictureFlags& flags) {
  const double width = flags.width > 0 ? static_cast<double>(flags.width) : kUsualWidth;
  const auto svg = [&] { return in_theme(residency_svg(picture, width), theme_of(flags)); };
  write_kind(path, svg, svg);
}

void convert(const std::string& text, std::vector<std::string> words, const std::string& path,
             std::string_view package) {
  const std::string source = path + ".source";
  write_file_atomically(source, text);
  words.push_back(source);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = -1;
  const bool started =
      posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0;
  if (started) waitpid(child, &status, 0);
  std::filesystem::remove(source);
  if (!started || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw IoError(
        fmt::format("{}: `{}` did not draw it; install {}, or ask for another kind of file", path,
                    words[0], package));
  }
}

}  // namespace fpdt
