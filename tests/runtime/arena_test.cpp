// Memory from the operating system: what is taken, what is resident, what is refused.
#include "fpdt/runtime/arena.h"

#include <sys/resource.h>
#include <utility>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

TEST(Reservation, IsReadableZeroAndNotResident) {
  const Reservation reservation(Bytes{100'000}, Populate::no, "a test");
  EXPECT_EQ(std::ssize(reservation.bytes()), round_up(100'000, page_bytes().value));
  EXPECT_EQ(resident_bytes(reservation.bytes()), Bytes{0});
  reservation.bytes()[3 * static_cast<std::size_t>(page_bytes().value)] = std::byte{1};
  EXPECT_EQ(resident_bytes(reservation.bytes()), page_bytes());
  EXPECT_EQ(reservation.bytes().back(), std::byte{0});
}

TEST(Reservation, PopulatesWhenAsked) {
  const Reservation reservation(Bytes{1 << 20}, Populate::yes, "a test");
  EXPECT_EQ(resident_bytes(reservation.bytes()), Bytes{1 << 20});
  EXPECT_GE(peak_resident_bytes(), Bytes{1 << 20});
}

TEST(Reservation, MovesWithItsMemory) {
  Reservation first(Bytes{1}, Populate::no, "a test");
  std::byte* const start = first.bytes().data();
  Reservation second(std::move(first));
  Reservation third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), start);
  EXPECT_TRUE(Reservation(Bytes{0}, Populate::no, "nothing").bytes().empty());
}

TEST(ReservationDeathTest, EndsAreGuarded) {
  const Reservation reservation(Bytes{1}, Populate::no, "a test");
  const auto size = static_cast<std::size_t>(page_bytes().value);
  volatile std::byte* bytes = reservation.bytes().data();
  EXPECT_DEATH(bytes[size] = std::byte{1}, "");
  EXPECT_DEATH(*(bytes - 1) = std::byte{1}, "");
}

TEST(Reservation, RefusesWhatTheMachineHasNot) {
  try {
    const Reservation reservation(Bytes{std::int64_t{1} << 50}, Populate::no,
                                  "the arena of device");
    FAIL() << "no error";
  } catch (const MemoryError& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_EQ(std::string(error.what()).find("the arena of device needs"), 0U) << error.what();
    EXPECT_NE(std::string(error.what()).find(memory_limit().source), std::string::npos)
        << error.what();
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In a child: the limit stays. (Sanitizers take most of the address space for themselves.)
TEST(ReservationDeathTest, RefusesWhatTheLimitOfTheProcessLeavesNot) {
  const auto refused = [] {
    const rlimit limit{std::size_t{1} << 30, std::size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const Reservation reservation(Bytes{std::int64_t{1} << 30}, Populate::no, "a test");
    } catch (const MemoryError& error) {
      std::fputs(error.what(), stderr);
      std::exit(static_cast<int>(error.code()));
    }
    std::exit(0);
  };
  EXPECT_EXIT(refused(), testing::ExitedWithCode(5), "RLIMIT_AS leaves");
}
#endif

TEST(ArenaBytes, EndsWithTheLastBufferInWholePages) {
  Schedule schedule;
  schedule.buffers.resize(3);
  schedule.buffers[0].shape = {10};
  schedule.buffers[0].offset = 8192;
  schedule.buffers[0].slots = 2;
  schedule.buffers[1].shape = {1};
  schedule.buffers[1].offset = 0;
  schedule.buffers[2].space = MemorySpace::host;
  schedule.buffers[2].shape = {1};
  schedule.buffers[2].offset = 0;
  EXPECT_EQ(arena_bytes(schedule, MemorySpace::device), page_bytes() + Bytes{8192});
  EXPECT_EQ(arena_bytes(schedule, MemorySpace::host), page_bytes());
  EXPECT_EQ(arena_bytes(schedule, MemorySpace::host_pinned), Bytes{0});
}

}  // namespace
}  // namespace fpdt
