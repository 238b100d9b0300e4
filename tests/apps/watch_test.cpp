// The line on which a terminal shows what long planning does.
#include "plan/watch.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "command_line.h"

namespace fpdt::test {
namespace {

// What a program writes to standard error while that is a terminal.
class Terminal {
 public:
  Terminal() : screen_(::posix_openpt(O_RDWR | O_NOCTTY)), before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::grantpt(screen_), 0);
    EXPECT_EQ(::unlockpt(screen_), 0);
    const int terminal = ::open(::ptsname(screen_), O_RDWR | O_NOCTTY);
    EXPECT_EQ(::dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    ::close(terminal);
    ::fcntl(screen_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // What has been written since the last call. The kernel hands it over a moment later.
  [[nodiscard]] std::string text() const {
    constexpr int kAtMost = 1000, kQuiet = 10;  // milliseconds
    std::string all;
    int wait = kAtMost;
    for (pollfd screen{screen_, POLLIN, 0}; ::poll(&screen, 1, wait) > 0; wait = kQuiet) {
      std::array<char, 4096> bytes{};
      const ssize_t count = ::read(screen_, bytes.data(), bytes.size());
      if (count <= 0) break;
      all.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return all;
  }
  [[nodiscard]] bool is_quiet() const {
    pollfd screen{screen_, POLLIN, 0};
    return ::poll(&screen, 1, 10) == 0;
  }

 private:
  int screen_, before_;
};

constexpr std::chrono::hours kLong{1};

// A clock that goes on when a test says so, however slow the machine is.
std::chrono::steady_clock::time_point told_time;
std::chrono::steady_clock::time_point told() { return told_time; }

TEST(Watch, ShowsWhatIsDoneAndLeavesNothing) {
  const Terminal terminal;
  {
    Watch watch(std::chrono::milliseconds(0), &told);
    watch.begin("search");
    EXPECT_EQ(terminal.text(), "\rsearch, 0:00\x1b[K");
    watch.hide();
    EXPECT_EQ(terminal.text(), "\r\x1b[K");
    watch.listener()({SearchProgress::Stage::starts, 0, 80, 0});
    EXPECT_TRUE(says(terminal.text(), "search, 0:00: pass 1, 0 of 80 starting points"));
    watch.hide();
    watch.listener()({SearchProgress::Stage::lengths, 7, 0, 1 << 20});
    EXPECT_TRUE(says(terminal.text(), "7 lengths tried, 1M tokens fit"));
    watch.hide();
    watch.listener()({SearchProgress::Stage::worth, 3, 28, 0});
    EXPECT_TRUE(says(terminal.text(), "lever 4 of 28, about 0:00 left"));
    told_time += std::chrono::milliseconds(100);
    watch.listener()({SearchProgress::Stage::worth, 4, 28, 0});
    EXPECT_TRUE(terminal.is_quiet());  // too soon
    told_time += std::chrono::milliseconds(6900);
    watch.listener()({SearchProgress::Stage::worth, 4, 28, 0});
    EXPECT_TRUE(says(terminal.text(), "0:07: lever 5 of 28, about 0:42 left"));
    watch.begin("proving");
    EXPECT_TRUE(says(terminal.text(), "\rproving, 0:00"));
  }
  EXPECT_TRUE(terminal.text().ends_with("\r\x1b[K"));
}

TEST(Watch, EstimatesPartsFromTheSecondOn) {
  const Terminal terminal;
  Watch watch(std::chrono::milliseconds(0), &told);
  watch.begin("seq-len 64K", 1, 9);
  EXPECT_TRUE(says(terminal.text(), "seq-len 64K, 1 of 9, 0:00"));
  watch.hide();
  told_time += std::chrono::seconds(4);
  watch.begin("seq-len 128K", 2, 9);
  EXPECT_TRUE(says(terminal.text(), "seq-len 128K, 2 of 9, about 0:32 left"));
}

TEST(Watch, IsSilentInShortWorkAndWithoutATerminal) {
  {
    const Terminal terminal;
    Watch watch(kLong);
    watch.begin("search");
    watch.hide();
    EXPECT_TRUE(terminal.is_quiet());
  }
  testing::internal::CaptureStderr();
  {
    Watch watch(std::chrono::milliseconds(0));
    watch.begin("search");
    watch.listener()({SearchProgress::Stage::starts, 0, 80, 0});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace fpdt::test
