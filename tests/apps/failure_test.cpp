// The first cause of a failure: from records made up for this test, and from runs that were killed.
#include "fpdt/flight/failure.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fpdt/io/schedule_json.h"

#include "command_line.h"

namespace fpdt::test {
namespace {

constexpr std::int64_t kRanks = 4;

// Four ranks in processes of their own, each in the third step.
class FirstCauses : public CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    ASSERT_EQ(plan("lower --model model.yaml --cluster cluster.yaml --strategy strategy.yaml "
                   "--gpus 4 --seq-len 64 --out-dir four")
                  .code,
              0);
    flights_.schedule = load_schedule(path("four/schedule.json"));
    ASSERT_EQ(flights_.schedule.ranks, kRanks);
    map_ = std::make_unique<FlightMap>(flights_.schedule);
    find_ops();
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      FlightRecord record;
      record.title.rank = rank;
      record.machine = "one";
      record.process = 100 + rank;
      record.phase = FlightPhase::training;
      record.phases = 5;
      record.step = 3;
      record.phase_time = 1000;
      record.lanes.resize(map_->program().lanes.size());
      flights_.ranks.push_back({record, FlightProcess::running, ""});
    }
  }

  [[nodiscard]] FlightRecord& record(std::int64_t rank) {
    return *flights_.ranks[static_cast<std::size_t>(rank)].record;
  }
  void set(std::int64_t rank, FlightProcess process) {
    flights_.ranks[static_cast<std::size_t>(rank)].process = process;
  }
  // The rank comes to an op of its third run.
  void put(std::int64_t rank, std::uint32_t number, FlightState state, std::int64_t time = 2000) {
    const FlightPosition position{3, number};
    const auto lane = static_cast<std::size_t>(map_->at(position)->op->lane);
    record(rank).lanes[lane].last = FlightOp{position, state, time};
  }
  void fail(std::int64_t rank, ExitCode code, std::int64_t time) {
    record(rank).failure = FlightFailure{code, code != ExitCode::peer_lost, time,
                                         fmt::format("why {}", static_cast<int>(code))};
  }
  [[nodiscard]] Explanation explanation() const { return explain(flights_, *map_); }

  Flights flights_;
  std::unique_ptr<FlightMap> map_;
  // Numbers of two collectives of one lane, and of ops of another lane before each of them.
  std::uint32_t compute_ = 0, collective_ = 0, next_compute_ = 0, next_collective_ = 0;

 private:
  void find_ops() {
    std::uint32_t last = 0;
    for (std::uint32_t number = 0; next_collective_ == 0; ++number) {
      const FlightPlace place = *map_->at({1, number});
      const bool meets = map_->members(place, 0).size == kRanks;
      if (!meets) {
        last = number;
      } else if (collective_ == 0) {
        compute_ = last;
        collective_ = number;
      } else if (last > collective_) {
        next_compute_ = last;
        next_collective_ = number;
      }
    }
    ASSERT_EQ(map_->at({1, collective_})->op->lane, map_->at({1, next_collective_})->op->lane);
  }
};

TEST_F(FirstCauses, ALiveRunHasNone) {
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::nothing);
  EXPECT_EQ(found.ranks.size(), 4U);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) record(rank).phase = FlightPhase::done;
  EXPECT_EQ(explanation().cause, FirstCause::nothing);
  EXPECT_TRUE(explanation().ranks.empty());
}

TEST_F(FirstCauses, TheFirstFailureOfARanksOwnCounts) {
  fail(0, ExitCode::peer_lost, 10);
  fail(1, ExitCode::file_system, 30);
  fail(2, ExitCode::numeric, 20);
  set(3, FlightProcess::gone);  // it died of the failure, or was killed for it
  put(2, compute_, FlightState::failed);
  put(2, collective_, FlightState::running);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::failed);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{2});
  EXPECT_EQ(found.op->position.number, compute_);
  EXPECT_EQ(found.gave_up, 0);
}

TEST_F(FirstCauses, AFailureThatSeveralRanksSeeIsThatOfAllOfThem) {
  for (const std::int64_t rank : {1, 2}) fail(rank, ExitCode::numeric, 20 + rank);
  fail(3, ExitCode::file_system, 30);
  EXPECT_EQ(explanation().ranks, (std::vector<std::int64_t>{1, 2}));
}

TEST_F(FirstCauses, OfThoseThatAreGoneTheFirstToFallSilent) {
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    set(rank, FlightProcess::gone);
    record(rank).pulse_time = 5'000'000'000 - (rank == 2 ? 900'000'000 : rank * 10'000'000);
  }
  put(1, collective_, FlightState::running);
  EXPECT_EQ(explanation().cause, FirstCause::gone);
  EXPECT_EQ(explanation().ranks, std::vector<std::int64_t>{2});
}

TEST_F(FirstCauses, OfThoseThatAreGoneTheOneThatTheOthersWaitFor) {
  for (const std::int64_t rank : {0, 2, 3}) put(rank, next_collective_, FlightState::running);
  put(1, collective_, FlightState::done);
  put(1, next_compute_, FlightState::running, 1500);
  // A launcher that ends the job kills them, and rank 0 has heard of the failure before.
  for (const std::int64_t rank : {1, 2, 3}) set(rank, FlightProcess::gone);
  fail(0, ExitCode::peer_lost, 3000);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::gone);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{1});
  EXPECT_TRUE(found.behind.empty());
  EXPECT_EQ(found.waiting, (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(found.awaited->number, next_collective_);
  EXPECT_EQ(found.op->position.number, next_compute_);
}

// Others wait for rank 1 at any time of a run that is well.
TEST_F(FirstCauses, IfAllFallSilentAtOnceAllAreNamed) {
  for (const std::int64_t rank : {0, 2, 3}) put(rank, next_collective_, FlightState::running);
  put(1, next_compute_, FlightState::running);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    set(rank, FlightProcess::gone);
    record(rank).pulse_time = 5'000'000'000 - rank * 100'000'000;
  }
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::gone);
  EXPECT_EQ(found.ranks, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(found.behind, std::vector<std::int64_t>{1});
  EXPECT_FALSE(found.op);
}

// Rank 0 waits for 1 to 3. Ranks 2 and 3 wait as well, one collective earlier, for 1.
TEST_F(FirstCauses, WhoeverWaitsIsNotTheCause) {
  put(0, next_collective_, FlightState::running);
  put(1, compute_, FlightState::running);
  for (const std::int64_t rank : {2, 3}) put(rank, collective_, FlightState::running);
  fail(0, ExitCode::peer_lost, 3000);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::behind);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{1});
  EXPECT_EQ(found.awaited->number, collective_);
  EXPECT_EQ(found.gave_up, 0);
}

TEST_F(FirstCauses, AStoppedProcessIsNamed) {
  for (const std::int64_t rank : {0, 1, 2}) {
    put(rank, collective_, FlightState::running);
    fail(rank, ExitCode::peer_lost, 3000 + rank);
  }
  set(3, FlightProcess::stopped);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::stopped);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{3});
  EXPECT_EQ(found.waiting, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST_F(FirstCauses, WhatWasLaunchedCannotPassWithoutTheOthers) {
  for (const std::int64_t rank : {0, 1, 3}) {
    put(rank, collective_, FlightState::launched);
    put(rank, next_compute_, FlightState::launched);
    fail(rank, ExitCode::peer_lost, 3000 + rank);
  }
  put(2, compute_, FlightState::launched);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::behind);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{2});
  EXPECT_EQ(found.waiting, (std::vector<std::int64_t>{0, 1, 3}));
}

TEST_F(FirstCauses, AProcessThatWasStoppedForAWhileIsNamed) {
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    put(rank, collective_, FlightState::failed);
    fail(rank, ExitCode::peer_lost, 3000 + rank);
    record(rank).silence = rank == 1 ? 4'000'000'000 : 300'000'000;
  }
  EXPECT_EQ(explanation().cause, FirstCause::silent);
  EXPECT_EQ(explanation().ranks, std::vector<std::int64_t>{1});
}

// On another machine nobody can tell whether a process still runs.
TEST_F(FirstCauses, UnknownProcessesAreNotCalledGone) {
  for (std::int64_t rank = 0; rank < kRanks; ++rank) set(rank, FlightProcess::unknown);
  for (const std::int64_t rank : {0, 1, 3}) put(rank, collective_, FlightState::running);
  EXPECT_EQ(explanation().cause, FirstCause::behind);
  EXPECT_EQ(explanation().ranks, std::vector<std::int64_t>{2});
}

TEST_F(FirstCauses, ARankWithoutARecordIsNamed) {
  flights_.ranks[2] = {std::nullopt, FlightProcess::unknown, "it has no file here"};
  put(0, collective_, FlightState::running);
  const Explanation found = explanation();
  EXPECT_EQ(found.cause, FirstCause::gone);
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{2});
  EXPECT_EQ(found.waiting, std::vector<std::int64_t>{0});
}

TEST_F(FirstCauses, BehindInItsPhasesCountsToo) {
  for (std::int64_t rank = 0; rank < kRanks; ++rank) fail(rank, ExitCode::peer_lost, 10);
  record(3).failure.reset();
  EXPECT_EQ(explanation().ranks, std::vector<std::int64_t>{3});
  fail(3, ExitCode::peer_lost, 10);
  record(1).phases = 4;
  EXPECT_EQ(explanation().cause, FirstCause::behind);
  EXPECT_EQ(explanation().ranks, std::vector<std::int64_t>{1});
}

TEST_F(FirstCauses, ALateRankIsCounted) {
  const auto lane = static_cast<std::size_t>(map_->at({3, collective_})->op->lane);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const std::int64_t delay = rank == 2 ? 50 : rank;
    for (const std::uint32_t number : {collective_, next_collective_}) {
      record(rank).lanes[lane].collectives.push_back({{3, number}, 1000 + delay, 1100});
    }
  }
  record(0).lanes[lane].collectives.pop_back();  // not yet begun
  for (const std::int64_t rank : {0, 1, 3}) fail(rank, ExitCode::peer_lost, 3000);
  const Explanation found = explanation();
  EXPECT_EQ(found.ranks, std::vector<std::int64_t>{2});
  ASSERT_TRUE(found.lateness);
  EXPECT_EQ(found.lateness->collectives, 1);
  EXPECT_EQ(found.lateness->last, 1);
  EXPECT_EQ(found.lateness->median, 50);
  record(1).machine = "another";
  EXPECT_FALSE(explanation().lateness);
}

TEST_F(FirstCauses, ARecordMustFitItsSchedule) {
  EXPECT_TRUE(map_->fits(record(0)));
  put(0, collective_, FlightState::running);
  EXPECT_TRUE(map_->fits(record(0)));
  std::optional<FlightOp>& last =
      record(0).lanes[static_cast<std::size_t>(map_->at({3, collective_})->op->lane)].last;
  last->position.number = compute_;  // of another lane
  EXPECT_FALSE(map_->fits(record(0)));
  last->position.number = FlightPosition::kOpsMax - 1;
  EXPECT_FALSE(map_->fits(record(0)));
  last.reset();
  record(0).lanes.pop_back();
  EXPECT_FALSE(map_->fits(record(0)));
}

// --- Runs of the program.

class ExplainFailure : public CommandLine {
 protected:
  static constexpr std::string_view kTrain =
      "$RUN train plan/schedule.json --flight-dir flights --data";

  // Trains until explain-failure shows the phase, then kills the process.
  [[nodiscard]] Outcome killed_in(std::string_view phase, std::string_view flags) const {
    return shell(
        fmt::format("{} {} & while kill -0 $! && ! $RUN explain-failure flights --json 2>early | "
                    "grep -q '\"phase\":\"{}\"'; do sleep 0.02; done; "
                    "kill -KILL $!; wait $!",
                    kTrain, flags, phase));
  }
  [[nodiscard]] nlohmann::json explained() const {
    const Outcome told = run("explain-failure flights --json");
    EXPECT_EQ(told.code, 0) << told.err;
    return nlohmann::json::parse(told.out);
  }
};

TEST_F(ExplainFailure, AKillInAStep) {
  ASSERT_EQ(killed_in("training", "text.txt --steps 1000000").code, 137);
  const Outcome told = run("explain-failure flights");
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(
      says(told.out, "first cause: the process of ranks 0 to 1 is gone and recorded no end: "));
  EXPECT_TRUE(says(told.out, "was in phase: step "));
  const auto json = explained();
  EXPECT_EQ(json.at("cause").at("kind"), "gone");
  EXPECT_EQ(json.at("cause").at("ranks"), (std::vector<int>{0, 1}));
  EXPECT_EQ(json.at("rank").at(1).at("phase"), "training");
}

TEST_F(ExplainFailure, ADamagedCheckpoint) {
  ASSERT_EQ(run("train plan/schedule.json --data text.txt --steps 1 --save ck").code, 0);
  std::string weights = contents("ck/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  write("ck/model.safetensors", weights);
  ASSERT_EQ(shell(fmt::format("{} text.txt --steps 2 --resume ck", kTrain)).code, 2);
  const auto json = explained();
  EXPECT_EQ(json.at("cause").at("kind"), "failed");
  EXPECT_EQ(json.at("cause").at("op"), nullptr);
  EXPECT_EQ(json.at("rank").at(0).at("phase"), "loading");
  EXPECT_TRUE(says(json.at("rank").at(0).at("failure").at("text"), "[T104]"));
}

// A kill at any call that changes the file system, from the first one of the directory on.
TEST_F(ExplainFailure, AKillInASave) {
  Outcome cut;
  int saves = 0;
  for (int call = 1; cut.code != 0; call += 9) {
    std::filesystem::remove_all(path("ck"));
    std::filesystem::remove_all(path("flights"));
    cut = shell(fmt::format("LD_PRELOAD={} FPDT_FAIL_AT={} {} text.txt --steps 1 --save ck",
                            FPDT_FAIL_AT_CALL, call, kTrain));
    ASSERT_TRUE(cut.code == 137 || cut.code == 0) << call << " " << cut.code << cut.err;
    if (cut.code == 0 || !exists("flights/rank-00000.flight")) continue;
    const auto json = explained();
    EXPECT_TRUE(json.at("cause").at("kind") == "gone" || json.at("rank").at(0).contains("missing"));
    const auto& first = json.at("rank").at(0);
    saves += !first.contains("missing") && first.at("phase") == "saving" ? 1 : 0;
  }
  EXPECT_GE(saves, 2);
}

TEST_F(ExplainFailure, AStepThatIsNotFinite) {
  const Outcome failed = shell(fmt::format("{} text.txt --steps 20 --learning-rate 1e30", kTrain));
  ASSERT_EQ(failed.code, 8) << failed.err;
  const Outcome told = run("explain-failure flights");
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(says(told.out, "first cause: ranks 0 to 1 failed with exit code 8: step "));
  EXPECT_TRUE(says(told.out, "  rank 0 on host "));
}

TEST_F(ExplainFailure, ARunThatEndsLeavesNoRecords) {
  ASSERT_EQ(shell(fmt::format("{} text.txt --steps 2", kTrain)).code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(path("flights")));
  const Outcome stopped = shell(fmt::format(
      "{} text.txt --steps 1000000 --log log & while ! test -s log && kill -0 $!; do sleep 0.02; "
      "done; kill -TERM $!; wait $!",
      kTrain));
  EXPECT_EQ(stopped.code, 143);
  EXPECT_TRUE(std::filesystem::is_empty(path("flights")));
  const Outcome none = run("explain-failure flights");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(says(none.err, "flights: no flight records; a run that ends well removes its own"));
}

// The directory of records is made before anything is loaded.
TEST_F(ExplainFailure, ASignalBeforeTheFirstStepEndsTheRunInOrder) {
  for (const int signal : {2, 15}) {
    const Outcome stopped = shell(fmt::format(
        "LD_PRELOAD={} FPDT_FAIL_AT=1 FPDT_SIGNAL={} {} text.txt --steps 2 --save ck --json",
        FPDT_FAIL_AT_CALL, signal, kTrain));
    EXPECT_EQ(stopped.code, 128 + signal);
    EXPECT_EQ(nlohmann::json::parse(stopped.out).at("steps"), 0);
    EXPECT_TRUE(std::filesystem::is_empty(path("flights")));
    EXPECT_FALSE(exists("ck"));
    std::filesystem::remove_all(path("flights"));
  }
}

TEST_F(ExplainFailure, TwoRunsDoNotShareADirectory) {
  const Outcome codes = shell(
      fmt::format("{0} text.txt --steps 1000000 --log log >first & while ! test -s log && kill -0 "
                  "$!; do sleep 0.02; done; "
                  "{0} text.txt --steps 1 >second 2>why; echo $?; ls flights/*.flight | wc -l; "
                  "kill -TERM $!; wait $!; echo $?; {0} text.txt --steps 1 >third; echo $?",
                  kTrain));
  EXPECT_EQ(codes.out, "2\n2\n143\n0\n");
  EXPECT_EQ(contents("why"),
            "fpdt-run: flights: another run keeps its flight records there; name another "
            "directory\n");
}

TEST_F(ExplainFailure, WithoutRoomForRecordsTheRunGoesOn) {
  write("taken", "");
  const Outcome through =
      run("train plan/schedule.json --data text.txt --steps 1 --flight-dir taken");
  EXPECT_EQ(through.code, 0);
  EXPECT_TRUE(says(through.err, "; rank 0 goes on without a flight record\n"));
  const Outcome full = shell(fmt::format("ulimit -f 4; {} text.txt --steps 1", kTrain));
  EXPECT_EQ(full.code, 0);
  EXPECT_TRUE(says(full.err, "File too large; rank 0 goes on without a flight record\n"));
}

TEST_F(ExplainFailure, ARecordControlsNoTerminal) {
  ASSERT_EQ(shell(fmt::format("{} text.txt --steps 20 --learning-rate 1e30", kTrain)).code, 8);
  const std::regex hash("[0-9a-f]{16}");  // of the schedule; it is the only one in a record
  for (const char* name : {"flights/rank-00000.flight", "flights/rank-00001.flight"}) {
    write(name, std::regex_replace(contents(name), hash, "\u009b2J of 16 bytes"));
  }
  const Outcome told = run("explain-failure flights");
  EXPECT_EQ(told.code, 2);
  EXPECT_TRUE(says(told.err, "not the schedule of the run, whose hash is \\u009b2J of 16 bytes"));
}

TEST_F(ExplainFailure, RefusesOtherFiles) {
  EXPECT_EQ(run("explain-failure nowhere").code, 7);
  ASSERT_EQ(shell(fmt::format("{} text.txt --steps 20 --learning-rate 1e30", kTrain)).code, 8);
  const std::string whole = contents("flights/rank-00001.flight");
  write("flights/rank-00001.flight", whole.substr(0, 100));
  auto json = explained();
  EXPECT_EQ(json.at("rank").at(1).at("missing"),
            "flights/rank-00001.flight: too short for a flight record");
  EXPECT_EQ(json.at("cause").at("ranks"), std::vector<int>{0});
  // A file under the name of another rank, and one of an earlier run.
  write("flights/rank-00001.flight", contents("flights/rank-00000.flight"));
  EXPECT_EQ(explained().at("rank").at(1).at("missing"),
            "flights/rank-00001.flight: the record of rank 0");
  ASSERT_EQ(shell(fmt::format("{} text.txt --steps 20 --learning-rate 1e30", kTrain)).code, 8);
  write("flights/rank-00001.flight", whole);
  EXPECT_EQ(explained().at("rank").at(1).at("missing"), "it has no record here of this run");
  write("flights/flight-schedule.json", "{}");
  EXPECT_EQ(run("explain-failure flights").code, 2);
  write("flights/rank-00000.flight", "x");
  write("flights/rank-00001.flight", "x");
  EXPECT_EQ(run("explain-failure flights").code, 2);
}

}  // namespace
}  // namespace fpdt::test
