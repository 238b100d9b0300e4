// The curves of a sweep: well-formed, every known value said, what does not fit marked.
#include "fpdt/report/sweep_svg.h"

#include <gtest/gtest.h>

#include "xml.h"

namespace fpdt {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SweepPicture example() {
  SweepPicture picture{"Chunks & time", "llama", "tokens of a chunk", {}, {}, {}};
  picture.device_capacity = Bytes{std::int64_t{80} << 30};
  for (int i = 0; i < 5; ++i) {
    SweepPoint point;
    point.label = format_tokens(std::int64_t{16384} << i);
    point.seconds = 100.0 - 5 * i;
    point.seconds_low = 0.9 * point.seconds;
    point.seconds_high = 1.2 * point.seconds;
    point.tokens_per_second = 500 + 25 * i;
    point.device = Bytes{std::int64_t{7 << i} << 30};
    if (i == 4) point.binding = "device";
    picture.points.push_back(point);
  }
  return picture;
}

TEST(SweepSvg, SaysEveryValueAndWhatDoesNotFit) {
  const std::string svg = sweep_svg(example());
  EXPECT_EQ(test::xml_error(svg), "");
  for (const char* text : {">16K<", ">256K<", ">100 s<", ">80.0 s<", ">575<", ">112 GiB<",
                           ">capacity 80.0 GiB<", "does not fit: device", "Chunks &amp; time"}) {
    EXPECT_TRUE(has(svg, text)) << text;
  }
  EXPECT_EQ(svg, sweep_svg(example()));
}

TEST(SweepSvg, WhatIsNotKnownIsNotDrawn) {
  SweepPicture picture = example();
  for (SweepPoint& point : picture.points) point.seconds = point.tokens_per_second = 0;
  const std::string svg = sweep_svg(picture);
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_FALSE(has(svg, ">0 ns<"));
  picture.points.clear();
  EXPECT_EQ(test::xml_error(sweep_svg(picture)), "");
}

}  // namespace
}  // namespace fpdt
