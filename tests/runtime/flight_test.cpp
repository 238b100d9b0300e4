// The flight record: what is stored is read again, by whoever opens the file, whatever it holds.
#include "fpdt/runtime/flight.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/comm/thread.h"
#include "fpdt/cpu/backend.h"
#include "fpdt/runtime/executor.h"

#include "tiny.h"

namespace fpdt {
namespace {

class Flight : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("fpdt_flight_{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(std::int64_t rank = 0) const {
    return fmt::format("{}/rank-{}", folder_, rank);
  }
  [[nodiscard]] std::string bytes(std::int64_t rank = 0) const {
    std::ifstream file(path(rank), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] FlightRecord read(std::int64_t rank = 0) const {
    return parse_flight(bytes(rank), path(rank));
  }

  static FlightTitle title(std::int64_t lanes) {
    return {.rank = 1, .ranks = 3, .lanes = lanes, .schedule = "0123456789abcdef"};
  }

 private:
  std::string folder_;
};

TEST_F(Flight, IsReadAsItWasWritten) {
  FlightRecorder recorder(path(), title(2));
  EXPECT_EQ(read().phase, FlightPhase::starting);
  recorder.enter(FlightPhase::training, 12);
  recorder.begin(0, {1, 4}, false);
  recorder.end(0, FlightState::done);
  recorder.begin(1, {1, 5}, true);
  FlightRecord record = read();
  EXPECT_EQ(record.job, 0);
  EXPECT_EQ(record.title.rank, 1);
  EXPECT_EQ(record.title.ranks, 3);
  EXPECT_EQ(record.title.schedule, "0123456789abcdef");
  EXPECT_EQ(record.phase, FlightPhase::training);
  EXPECT_EQ(record.step, 12);
  EXPECT_EQ(record.phases, 2);
  EXPECT_EQ(record.process, ::getpid());
  EXPECT_EQ(process_of(record), FlightProcess::running);
  EXPECT_FALSE(record.failure);
  ASSERT_EQ(record.lanes.size(), 2U);
  EXPECT_EQ(record.lanes[0].last->position, (FlightPosition{1, 4}));
  EXPECT_EQ(record.lanes[0].last->state, FlightState::done);
  EXPECT_TRUE(record.lanes[0].collectives.empty());
  EXPECT_EQ(record.lanes[1].last->position, (FlightPosition{1, 5}));
  EXPECT_EQ(record.lanes[1].last->state, FlightState::running);
  ASSERT_EQ(record.lanes[1].collectives.size(), 1U);
  EXPECT_EQ(record.lanes[1].collectives[0].end, 0);
  EXPECT_EQ(record.last_time(), record.lanes[1].last->time);

  recorder.end(1, FlightState::launched);
  recorder.all_done();
  recorder.fail(NumericError("the loss\nis \x1b nan"), true, flight_clock());
  recorder.fail(PeerError("rank 0 stopped"), false, flight_clock());
  record = read();
  EXPECT_EQ(record.lanes[1].last->state, FlightState::done);
  EXPECT_GE(record.lanes[1].collectives[0].end, record.lanes[1].collectives[0].begin);
  ASSERT_TRUE(record.failure);
  EXPECT_EQ(record.failure->code, ExitCode::numeric);
  EXPECT_EQ(record.failure->text, "the loss is ? nan");
  EXPECT_TRUE(record.failure->own);
  EXPECT_EQ(record.last_time(), record.failure->time);

  recorder.join(recorder.begin_time() + 7);
  recorder.pulse();
  EXPECT_EQ(read().silence, 0);
  const std::int64_t first_pulse = read().pulse_time;
  recorder.pulse();
  const std::int64_t silence = read().pulse_time - first_pulse;
  EXPECT_EQ(read().silence, silence);
  recorder.pulse();
  EXPECT_GE(read().silence, silence);
  record = read();
  EXPECT_EQ(record.job, record.begin_time + 7);
  EXPECT_EQ(record.last_time(), record.pulse_time);
  EXPECT_LE(record.begin_time, record.failure->time);
  EXPECT_LE(record.failure->time, record.pulse_time);
}

// A process that was stopped for long hears that its peers gave up, and ends before it pulses.
TEST_F(Flight, KnowsTheSilenceBeforeAFailure) {
  FlightRecorder recorder(path(), title(1));
  recorder.pulse();
  EXPECT_EQ(read().silence, 0);
  recorder.fail(PeerError("rank 0 stopped"), false, flight_clock());
  const FlightRecord record = read();
  EXPECT_GT(record.failure->time, record.pulse_time);
  EXPECT_GE(record.silence, record.failure->time - record.pulse_time);
}

TEST_F(Flight, KeepsTheLastCollectives) {
  FlightRecorder recorder(path(), title(1));
  for (std::uint32_t i = 0; i < 200; ++i) {
    recorder.begin(0, {1, i}, true);
    recorder.end(0, FlightState::done);
  }
  const std::vector<FlightCollective> kept = read().lanes[0].collectives;
  ASSERT_EQ(kept.size(), 63U);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].position.number, 137 + i);
}

TEST_F(Flight, ALongCauseIsCutShort) {
  FlightRecorder recorder(path(), title(1));
  recorder.fail(InputError(std::string(5000, 'x')), false, flight_clock());
  EXPECT_EQ(read().failure->text, std::string(1007, 'x'));
}

// A process that is killed leaves what it stored, with a word that it was about to replace.
TEST_F(Flight, OutlivesAKill) {
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(path(), title(1));
    for (std::uint32_t i = 0; i < 100; ++i) recorder.begin(0, {2, i}, i % 2 == 0);
    ::kill(::getpid(), SIGKILL);
  }
  // Not waited for, it is a zombie, which counts as gone.
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_of(read()), FlightProcess::gone);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const FlightRecord record = read();
  EXPECT_EQ(process_of(record), FlightProcess::gone);
  EXPECT_EQ(record.lanes[0].last->position, (FlightPosition{2, 99}));
  EXPECT_EQ(record.lanes[0].last->state, FlightState::running);
}

TEST_F(Flight, KnowsAStoppedProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(path(), title(1));
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(process_of(read()), FlightProcess::stopped);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(Flight, KnowsOnlyProcessesOfItsMachine) {
  FlightRecorder recorder(path(), title(1));
  FlightRecord record = read();
  record.process_start += 1;  // another process with the same number
  EXPECT_EQ(process_of(record), FlightProcess::gone);
  record.machine += "x";
  EXPECT_EQ(process_of(record), FlightProcess::unknown);
}

TEST_F(Flight, WithoutRoomThereIsNoFile) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(FlightRecorder(path(), title(1)), IoError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// Every length, and random bytes anywhere: an InputError, or a record with numbers in range.
TEST_F(Flight, RefusesWhatIsNoRecord) {
  {
    FlightRecorder recorder(path(), title(2));
    recorder.begin(0, {1, 1}, true);
    recorder.fail(IoError("disk"), true, flight_clock());
  }
  const std::string good = bytes();
  EXPECT_NO_THROW(parse_flight(good, "x"));
  EXPECT_THROW(parse_flight(good + '\0', "x"), InputError);
  for (std::size_t size = 0; size < good.size(); size += 7) {
    EXPECT_THROW(parse_flight(good.substr(0, size), "x"), InputError) << size;
  }
  const auto changed = [&](std::size_t word, std::uint64_t value) {
    std::string text = good;
    std::memcpy(text.data() + 8 * word, &value, 8);
    return text;
  };
  // Magic, rank, ranks, lanes and process.
  for (std::size_t word = 0; word < 5; ++word) {
    for (const std::uint64_t value :
         {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
      if (word == 1 && value == 0) continue;
      EXPECT_THROW(parse_flight(changed(word, value), "x"), InputError) << word << ' ' << value;
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (int k = 0; k < 4; ++k) text[random() % text.size()] = static_cast<char>(random());
    try {
      const FlightRecord record = parse_flight(text, "x");
      EXPECT_LT(record.title.rank, record.title.ranks);
      EXPECT_GE(record.last_time(), 0);
      EXPECT_LT(static_cast<std::size_t>(record.phase), words<FlightPhase>().size());
    } catch (const InputError&) {
    }
  }
}

// A ring entry that was being replaced is left out.
TEST_F(Flight, LeavesOutATornCollective) {
  FlightRecorder recorder(path(), title(1));
  for (std::uint32_t i = 1; i <= 3; ++i) recorder.begin(0, {1, i}, true);
  std::string text = bytes();
  const std::uint64_t second = std::uint64_t{1} << 32 | 2 << 2 | 1;  // run 1, op 2, running
  const std::string word(reinterpret_cast<const char*>(&second), sizeof second);
  const std::size_t at = text.find(word);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, std::string(8, '\0'));
  const std::vector<FlightCollective> kept = parse_flight(text, "x").lanes[0].collectives;
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].position.number, 1U);
  EXPECT_EQ(kept[1].position.number, 3U);
}

// What ranks record of a schedule, while another thread reads it.
TEST_F(Flight, FollowsTheOpsOfEveryRank) {
  Pipeline pipeline{.ranks = 2};
  const VerifiedSchedule schedule = pipeline.build();
  const Program program(schedule.schedule());
  std::vector<std::unique_ptr<FlightRecorder>> recorders;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    FlightTitle one = title(std::ssize(program.lanes));
    one.rank = rank;
    recorders.push_back(std::make_unique<FlightRecorder>(path(rank), one));
  }
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) EXPECT_EQ(read(1).title.rank, 1);
  });
  run_ranks(2, [&](Communicator& communicator) {
    CpuBackend backend(communicator, {.threads = 1});
    Executor executor(schedule, backend, communicator,
                      recorders[static_cast<std::size_t>(communicator.rank())].get());
    for (int run = 0; run < 5; ++run) executor.run(schedule.schedule().train);
  });
  over = true;
  reader.join();
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const FlightRecord record = read(rank);
    std::uint32_t furthest = 0;
    for (const FlightLane& lane : record.lanes) {
      ASSERT_TRUE(lane.last);
      EXPECT_EQ(lane.last->position.run, 5U);
      EXPECT_EQ(lane.last->state, FlightState::done);
      furthest = std::max(furthest, lane.last->position.number);
    }
    EXPECT_EQ(furthest + 1, (6 * pipeline.chunks + 3) * pipeline.calls);
  }
}

}  // namespace
}  // namespace fpdt
