// Numbers on axes.
#include "fpdt/report/axis.h"

#include <gtest/gtest.h>

namespace fpdt {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> all;
  for (const Tick& tick : ticks) all.push_back(tick.label);
  return all;
}

TEST(Axis, TimesHaveTheirUnit) {
  EXPECT_EQ(format_nanoseconds(0), "0 ns");
  EXPECT_EQ(format_nanoseconds(812), "812 ns");
  EXPECT_EQ(format_nanoseconds(45'300), "45.3 µs");
  EXPECT_EQ(format_nanoseconds(1'234'000), "1.23 ms");
  EXPECT_EQ(format_nanoseconds(999'700'000), "1.00 s");
  EXPECT_EQ(format_nanoseconds(12'340'000'000), "12.3 s");
  EXPECT_EQ(format_nanoseconds(119 * kSecond), "119 s");
  EXPECT_EQ(format_nanoseconds(125 * kSecond), "2 min 05 s");
  EXPECT_EQ(format_nanoseconds(3780 * kSecond), "1 h 03 min");
  EXPECT_EQ(format_nanoseconds(-812), "-812 ns");
}

TEST(Axis, SharesHaveTwoDigits) {
  EXPECT_EQ(format_percent(1, 2), "50 %");
  EXPECT_EQ(format_percent(0.03, 10), "0.3 %");
  EXPECT_EQ(format_percent(0, 1), "0 %");
}

TEST(Axis, TimeTicksAreRoundAndCountFromZero) {
  EXPECT_EQ(labels(time_ticks(0, 1'000'000, 0, 5)),
            (std::vector<std::string>{"0", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms", "1.0 ms"}));
  EXPECT_EQ(labels(time_ticks(0, 70 * kSecond, 0, 5)),
            (std::vector<std::string>{"0", "15 s", "30 s", "45 s", "60 s"}));
  EXPECT_EQ(
      labels(time_ticks(0, 6000 * kSecond, 0, 8)),
      (std::vector<std::string>{"0", "15 min", "30 min", "45 min", "60 min", "75 min", "90 min"}));
  EXPECT_EQ(labels(time_ticks(180 * kSecond, 240 * kSecond, 0, 4)),
            (std::vector<std::string>{"3:00 min", "3:15 min", "3:30 min", "3:45 min", "4:00 min"}));
  // A part of a step of hours.
  EXPECT_EQ(
      labels(time_ticks(22920 * kSecond, 23040 * kSecond, 0, 4)),
      (std::vector<std::string>{"6:22:00 h", "6:22:30 h", "6:23:00 h", "6:23:30 h", "6:24:00 h"}));
  EXPECT_EQ(labels(time_ticks(7200 * kSecond, 7800 * kSecond, 0, 2)),
            (std::vector<std::string>{"2:00 h", "2:05 h", "2:10 h"}));
  // The axis starts at another zero.
  const std::vector<Tick> ticks = time_ticks(1005, 2005, 1005, 2);
  ASSERT_EQ(ticks.size(), 3U);
  EXPECT_EQ(ticks.front().at, 1005);
  EXPECT_EQ(ticks.front().label, "0");
}

TEST(Axis, ByteTicksAreRoundInTheirUnit) {
  EXPECT_EQ(labels(byte_ticks(Bytes{std::int64_t{90} << 30}, 5)),
            (std::vector<std::string>{"0", "20 GiB", "40 GiB", "60 GiB", "80 GiB"}));
  EXPECT_EQ(labels(byte_ticks(Bytes{1500}, 3)),
            (std::vector<std::string>{"0", "500 B", "1000 B", "1500 B"}));
}

}  // namespace
}  // namespace fpdt
