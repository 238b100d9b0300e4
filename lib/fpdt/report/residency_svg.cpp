// Draws two grids side by side, with one row for each layer, and the segments at their left.
#include "fpdt/report/residency_svg.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "fpdt/report/axis.h"
#include "fpdt/report/look.h"
#include "fpdt/report/palette.h"
#include "fpdt/report/svg.h"

namespace fpdt {
namespace {

constexpr std::string_view kResidencyStyle =
    ".panel{font-size:16px;font-weight:600}.tick{font-size:13.5px;fill:#52606D}"
    ".name{font-size:14px}.note{font-size:12.5px;fill:#616E7C}";
constexpr double kLabelSize = 13.5;  // font size, as above
constexpr double kTitleLine = 20;    // of the lines below the title
constexpr double kGridLeft = 112;    // of the first grid
constexpr double kGridGap = 64;
constexpr double kGrid = (kPictureWidth - kPictureMargin - kGridLeft - kGridGap) / 2;
constexpr double kTallest = 620, kRow = 26;  // of all layers, and of one at most
constexpr double kGridHead = 62;             // above the grids, for their names and shares
constexpr double kFoot = 84;                 // below them, for the axis and the legend
constexpr double kSwatch = 15;
constexpr double kKinds = kGridLeft - 64, kKindsWidth = 9;  // the column of kinds

struct Grid {
  std::string_view name;
  std::string_view again;  // what a chunk that is dropped costs
  double left;
  std::vector<ChunkRun> LayerResidency::*runs;
};
constexpr std::array<Grid, 2> kGrids{{
    {"input of the layer (x)", "rebuilt from the segment's input", kGridLeft,
     &LayerResidency::input},
    {"attention output (O)", "attention is repeated", kGridLeft + kGrid + kGridGap,
     &LayerResidency::output},
}};

std::string_view color_of(Fate fate) {
  constexpr std::string_view kDropped = "#DCE3EA";
  switch (fate) {
    case Fate::device:
      return color(Part::activations);
    case Fate::host:
      return color(OpKind::fetch);
    case Fate::again:
      break;
  }
  return kDropped;
}

// As many as a model may have.
std::string_view color_of_kind(std::int64_t kind) {
  constexpr std::array<std::string_view, kKindsMost> kColors{
      "#A9B7C4", "#6F4E9C", "#C8586C", "#2F6F8F", "#8FB8A8", "#D9A441", "#B08BC9", "#4F5B66"};
  return kColors[static_cast<std::size_t>(kind)];
}

class Drawing {
 public:
  explicit Drawing(const ResidencyPicture& picture)
      : picture_(picture),
        layers_(std::ssize(picture.layers)),
        row_(std::min(kRow, kTallest / static_cast<double>(layers_))),
        filled_(std::max(row_ - 0.6, 0.6 * row_)),
        top_(60 + kTitleLine * static_cast<double>(picture.lines.size()) + kGridHead) {}

  std::string finish(double width) {
    svg_.text(kPictureMargin, 46, picture_.title, "title");
    double y = 46;
    for (const std::string& line : picture_.lines) {
      svg_.text(kPictureMargin, y += kTitleLine + 4, line, "subtitle");
    }
    for (const Grid& grid : kGrids) draw(grid);
    layer_numbers();
    if (!picture_.kinds.empty()) kinds();
    legend();
    const std::string style = std::string(kLook).append(kResidencyStyle);
    const double foot = kFoot + (picture_.kinds.empty() ? 0 : kTitleLine + 6);
    return svg_.finish(kPictureWidth, bottom() + foot, picture_.title, style,
                       width / kPictureWidth);
  }

 private:
  [[nodiscard]] double y_of(std::int64_t layer) const {
    return top_ + row_ * static_cast<double>(layer);
  }
  [[nodiscard]] double bottom() const { return y_of(layers_); }
  [[nodiscard]] std::int64_t first_token(std::int64_t chunk) const {
    return std::min(chunk * picture_.chunk_tokens, picture_.tokens);
  }
  [[nodiscard]] double x_of(const Grid& grid, std::int64_t chunk) const {
    return grid.left +
           kGrid * static_cast<double>(first_token(chunk)) / static_cast<double>(picture_.tokens);
  }

  // The share of all tokens of all layers.
  [[nodiscard]] std::string share(const Grid& grid, Fate fate) const {
    std::int64_t tokens = 0;
    for (const LayerResidency& layer : picture_.layers) {
      std::int64_t chunk = 0;
      for (const ChunkRun& run : layer.*grid.runs) {
        const std::int64_t end = chunk + run.chunks;
        if (run.fate == fate) tokens += first_token(end) - first_token(chunk);
        chunk = end;
      }
    }
    return format_percent(static_cast<double>(tokens),
                          static_cast<double>(picture_.tokens * layers_));
  }

  void draw(const Grid& grid) {
    svg_.text(grid.left, top_ - 34, grid.name, "panel");
    svg_.text(
        grid.left, top_ - 13,
        fmt::format("{} on the device, {} on the host, {} again: {}", share(grid, Fate::device),
                    share(grid, Fate::host), share(grid, Fate::again), grid.again),
        "note");
    for (std::int64_t layer = 0; layer < layers_; ++layer) draw_layer(grid, layer);
    // Segments stand apart.
    for (std::int64_t layer = 1; layer < layers_; ++layer) {
      if (!picture_.layers[static_cast<std::size_t>(layer)].place.first()) continue;
      svg_.line(grid.left, y_of(layer), grid.left + kGrid, y_of(layer), "#FFFFFF",
                "stroke-width=\"1.5\"");
    }
    for (const std::int64_t quarter : {0, 1, 2, 3, 4}) {
      const double x = grid.left + kGrid * static_cast<double>(quarter) / 4;
      svg_.line(x, bottom(), x, bottom() + 5, kSoftInk);
      svg_.text(x, bottom() + 20, format_tokens(picture_.tokens * quarter / 4), "tick",
                quarter == 0   ? Anchor::start
                : quarter == 4 ? Anchor::end
                               : Anchor::middle);
    }
  }

  void draw_layer(const Grid& grid, std::int64_t layer) {
    std::int64_t chunk = 0;
    for (const ChunkRun& run : picture_.layers[static_cast<std::size_t>(layer)].*grid.runs) {
      const double x = x_of(grid, chunk);
      const std::int64_t end = chunk + run.chunks;
      svg_.begin_group(fmt::format("layer {}, chunks {} to {}: {}", layer, chunk, end - 1,
                                   run.fate == Fate::again ? grid.again : word(run.fate)));
      svg_.rectangle(x, y_of(layer), x_of(grid, end) - x, filled_, color_of(run.fate));
      svg_.end_group();
      chunk = end;
    }
  }

  // The first layer of each segment, where there is room.
  void layer_numbers() {
    svg_.text(kGridLeft - 10, top_ - 34, "layer", "tick", Anchor::end);
    double free = 0;
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const LayerPlace& place = picture_.layers[static_cast<std::size_t>(layer)].place;
      if (place.length > 1 && place.first()) bracket(layer, place.length);
      const double y = y_of(layer) + row_ / 2 + kLabelSize / 3;
      if (!place.first() || y < free) continue;
      svg_.text(kGridLeft - 20, y, fmt::format("{}", layer), "tick", Anchor::end);
      free = y + kLabelSize;
    }
  }

  void bracket(std::int64_t layer, std::int64_t length) {
    const double from = y_of(layer) + 2;
    const double to = y_of(layer + length) - 2;
    svg_.path(fmt::format("M{} {}H{}V{}H{}", coordinate(kGridLeft - 6), coordinate(from),
                          coordinate(kGridLeft - 12), coordinate(to), coordinate(kGridLeft - 6)),
              "none", fmt::format("stroke=\"{}\"", kSoftInk));
  }

  // A column at the left: the kind of each layer.
  void kinds() {
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const std::int64_t kind = picture_.layers[static_cast<std::size_t>(layer)].kind;
      svg_.begin_group(
          fmt::format("layer {}: {}", layer, picture_.kinds[static_cast<std::size_t>(kind)]));
      svg_.rectangle(kKinds, y_of(layer), kKindsWidth, filled_, color_of_kind(kind));
      svg_.end_group();
    }
    const double y = bottom() + 54 + kTitleLine + 6;
    double x = kGridLeft;
    for (std::size_t kind = 0; kind < picture_.kinds.size(); ++kind) {
      x = swatch(x, y, color_of_kind(static_cast<std::int64_t>(kind)), picture_.kinds[kind]);
    }
  }

  // A colour and its name; where the next begins.
  double swatch(double x, double y, std::string_view fill, std::string_view name) {
    svg_.rectangle(x, y - kSwatch + 3, kSwatch, kSwatch, fill, "rx=\"2\"");
    svg_.text(x + kSwatch + 8, y, name, "name");
    return x + kSwatch + 40 + text_width(name, 14);
  }

  void legend() {
    const double y = bottom() + 54;
    double x = kGridLeft;
    for (const auto& [fate, name] : {std::pair(Fate::device, "stored on the device"),
                                     std::pair(Fate::host, "stored on the host"),
                                     std::pair(Fate::again, "dropped, and computed again")}) {
      x = swatch(x, y, color_of(fate), name);
    }
    svg_.text(kPictureWidth - kPictureMargin, y,
              "one row is a layer; from left to right: the sequence, in tokens", "note",
              Anchor::end);
  }

  const ResidencyPicture& picture_;
  std::int64_t layers_;
  double row_, filled_, top_;
  Svg svg_;
};

}  // namespace

std::string residency_svg(const ResidencyPicture& picture, double width) {
  return Drawing(picture).finish(width);
}

}  // namespace fpdt
