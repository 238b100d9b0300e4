// Layers and chunks: what is drawn, and that shares are those of the chunks.
#include "fpdt/report/residency_svg.h"

#include <string>

#include <gtest/gtest.h>

#include "xml.h"

namespace fpdt {
namespace {

// Two layers of a segment and one alone; eight chunks.
ResidencyPicture three_layers() {
  ResidencyPicture picture{"a model", {"one <line>"}, {}, 1 << 17, 1 << 20, {}};
  const std::vector<ChunkRun> output{{2, Fate::again}, {5, Fate::host}, {1, Fate::device}};
  picture.layers.push_back({{0, 0, 0, 2}, {{8, Fate::host}}, output});
  picture.layers.push_back({{0, 0, 1, 2}, {{8, Fate::again}}, output});
  picture.layers.push_back({{0, 1, 0, 1}, {{6, Fate::host}, {2, Fate::device}}, output});
  return picture;
}

using test::count;

TEST(ResidencySvg, DrawsEveryRunOfChunks) {
  const std::string svg = residency_svg(three_layers(), 1400);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_EQ(count(svg, "<title>layer "), 4U + 9U);
  EXPECT_EQ(count(svg, "layer 2, chunks 6 to 7: device"), 1U);
  EXPECT_EQ(count(svg, "layer 1, chunks 0 to 1: attention is repeated"), 1U);
}

TEST(ResidencySvg, SaysTheirShares) {
  const std::string svg = residency_svg(three_layers(), 700);
  EXPECT_EQ(count(svg, "8.3 % on the device, 58 % on the host, 33 % again"), 1U);
  EXPECT_EQ(count(svg, "12 % on the device, 62 % on the host, 25 % again"), 1U);
  EXPECT_EQ(count(svg, "width=\"700\""), 1U);
  EXPECT_EQ(count(svg, ">256K</text>"), 2U);
}

// 9 of 16 tokens are in the first of two chunks.
TEST(ResidencySvg, AShortLastChunkIsNarrow) {
  ResidencyPicture picture{"a model", {}, {}, 9, 16, {}};
  picture.layers.push_back(
      {{0, 0, 0, 1}, {{2, Fate::host}}, {{1, Fate::again}, {1, Fate::device}}});
  const std::string svg = residency_svg(picture, 1400);
  EXPECT_EQ(count(svg, "44 % on the device, 0 % on the host, 56 % again"), 1U) << svg;
}

TEST(ResidencySvg, HasAColumnOfKinds) {
  ResidencyPicture picture = three_layers();
  EXPECT_EQ(count(residency_svg(picture, 1400), ": window"), 0U);
  picture.kinds = {"window (1024)", "full"};
  picture.layers.back().kind = 1;
  const std::string svg = residency_svg(picture, 1400);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_EQ(count(svg, "<title>layer 0: window (1024)</title>"), 1U);
  EXPECT_EQ(count(svg, "<title>layer 2: full</title>"), 1U);
  EXPECT_EQ(count(svg, ">full</text>"), 1U);
}

TEST(ResidencySvg, HoldsManyLayers) {
  ResidencyPicture picture = three_layers();
  for (const std::size_t layers : {126U, 2000U}) {
    while (picture.layers.size() < layers) picture.layers.push_back(picture.layers.back());
    const std::string svg = residency_svg(picture, 1400);
    EXPECT_EQ(test::xml_error(svg), "");
    EXPECT_LT(std::stod(svg.substr(svg.find("height=\"") + 8)), 1000);
    EXPECT_EQ(count(svg, "height=\"-"), 0U);
  }
}

}  // namespace
}  // namespace fpdt
