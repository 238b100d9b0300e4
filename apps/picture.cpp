// How pictures of a step look, and what writes them.
#include "picture.h"

#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "fpdt/io/file.h"
#include "fpdt/report/theme.h"
#include "fpdt/report/timeline_html.h"
#include "fpdt/report/timeline_svg.h"

namespace fpdt {
namespace {

// In pixels. Text of a narrower picture could not be read.
constexpr std::int64_t kNarrowest = 400;
constexpr std::int64_t kWidest = 16000;

std::string kind_of(const std::string& path) { return std::filesystem::path(path).extension(); }

}  // namespace

void add_picture_flags(Options& options, PictureFlags& flags, std::string_view asked_by) {
  // Help of a verb begins with a capital in fpdt-plan; fpdt-run says which flag goes with it.
  const auto help = [&](std::string_view alone, std::string_view beside) {
    return asked_by.empty() ? std::string(alone) : fmt::format("with {}: {}", asked_by, beside);
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

bool names_picture(const std::string& path) {
  const std::string kind = kind_of(path);
  return kind == ".html" || kind == ".svg" || kind == ".png";
}

void require_sensible(const PictureFlags& flags, const std::string& path) {
  if (flags.sized() && (!names_picture(path) || kind_of(path) == ".html")) {
    throw InputError(fmt::format(
        "--width and --height are for pictures of a step that end in .svg or .png, not for {}",
        path));
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
  const Theme theme = flags.dark() ? Theme::dark : Theme::light;
  const std::string kind = kind_of(path);
  if (kind == ".html") {
    write_file_atomically(path, in_theme(timeline_html(picture), theme));
    return;
  }
  PictureSize size;
  if (flags.width > 0) size.width = static_cast<double>(flags.width);
  if (flags.height > 0) size.height = static_cast<double>(flags.height);
  const std::string svg = in_theme(timeline_svg(picture, size), theme);
  if (kind == ".svg") {
    write_file_atomically(path, svg);
  } else {
    convert(svg, {"rsvg-convert", "-o", path}, path, "librsvg2-bin");
  }
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
