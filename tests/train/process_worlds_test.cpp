// Processes that meet, exchange bytes, run ranks together and fail together.
#include "process_worlds.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/check/check.h"

#include "cases.h"

namespace fpdt {
namespace {

std::vector<std::string> texts(const std::vector<std::optional<Error>>& errors) {
  std::vector<std::string> all;
  for (const std::optional<Error>& error : errors) all.emplace_back(error ? error->what() : "");
  return all;
}

TEST(Processes, GatherAndSum) {
  const auto errors = run_processes(3, [](World& world, const Connect&) {
    const std::int64_t mine = world.place().process;
    for (std::int64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(world.gather(std::string(static_cast<std::size_t>(mine), 'x')),
                (std::vector<std::string>{"", "x", "xx"}));
      EXPECT_EQ(sum(world, i + mine), 3 * i + 3);
      EXPECT_EQ(largest(world, i * mine), 2 * i);
      EXPECT_EQ(broadcast(world, std::to_string(mine), 1), "1");
    }
    EXPECT_EQ(world.speaks(), mine == 0);
  });
  EXPECT_EQ(texts(errors), std::vector<std::string>(3));
}

TEST(Processes, SendInOrder) {
  const auto errors = run_processes(2, [](World& world, const Connect&) {
    for (int i = 0; i < 100; ++i) {
      std::array<int, 2> numbers{i, -i};
      if (world.place().process == 0) {
        world.send(1, std::as_bytes(std::span(numbers)));
      } else {
        numbers = {};
        world.receive(0, std::as_writable_bytes(std::span(numbers)));
        EXPECT_EQ(numbers, (std::array<int, 2>{i, -i}));
      }
    }
  });
  EXPECT_EQ(texts(errors), std::vector<std::string>(2));
}

// The worst error of any process is the error of all.
TEST(Processes, AgreeOnAnError) {
  const auto errors = run_processes(3, [](World& world, const Connect&) {
    agree(world, [] {});
    agree(world, [&] {
      if (world.place().process == 1) throw InputError("one");
      if (world.place().process == 2) throw IoError("two");
    });
  });
  EXPECT_EQ(texts(errors), std::vector<std::string>(3, "rank 2: two"));
  EXPECT_EQ(errors[0]->code(), ExitCode::file_system);
}

TEST(Processes, LearnOfAFailureWhereverTheyWait) {
  const auto errors = run_processes(5, [&](World& world, const Connect& connect) {
    std::array<std::byte, 1> bytes{};
    switch (world.place().process) {
      case 0:
        throw InputError("no such file");
      case 1:
        world.gather("");
        break;
      case 2:
        world.send(0, bytes);
        break;
      case 3:
        world.receive(0, bytes);
        break;
      default:
        connect([](Communicator&) {});
    }
  });
  EXPECT_EQ(texts(errors)[0], "no such file");
  for (std::size_t process = 1; process < 5; ++process) {
    ASSERT_TRUE(errors[process]);
    EXPECT_EQ(errors[process]->code(), ExitCode::peer_lost);
    EXPECT_STREQ(errors[process]->what(), "rank 0 stopped: no such file");
  }
}

TEST(Processes, DoNotWaitForEver) {
  const auto errors = run_processes(
      2,
      [](World& world, const Connect&) {
        if (world.place().process == 0) world.gather("");
      },
      std::chrono::milliseconds(10));
  ASSERT_TRUE(errors[0]);
  EXPECT_STREQ(errors[0]->what(), "rank 0 stopped: waited 10 ms for another process");
}

// Ranks in processes of their own compute the bits of ranks in one, one job after the other.
TEST(Processes, TrainAsThreadsDo) {
  const Case one = make_case(tiny_llama(), 2, 16, 8);
  const std::vector<Sample> samples = random_samples(one.problem, 1, 3);
  const auto losses = [&](Trainer& trainer) {
    trainer.set_parameters(initial_parameters(1));
    const double first = trainer.step(samples, 1e-2).loss;
    return std::pair(first, trainer.step(samples, 1e-2).loss);
  };
  Rig together(one);
  const auto expected = losses(together.trainer);
  const auto errors = run_processes(2, [&](World& world, const Connect& connect) {
    for (int i = 0; i < 3; ++i) {
      Rig rig(one, in_process(world, connect));
      EXPECT_EQ(rig.trainer.ranks().present(), world.place().present);
      EXPECT_EQ(losses(rig.trainer), expected);
    }
  });
  EXPECT_EQ(texts(errors), std::vector<std::string>(2));
}

// A process fails between steps, while the others wait for its rank in one.
TEST(Processes, FailInAStep) {
  const Case one = make_case(tiny_llama(), 4, 24, 24);
  const std::vector<Sample> samples = random_samples(one.problem, 1, 3);
  const auto errors = run_processes(4, [&](World& world, const Connect& connect) {
    Rig rig(one, in_process(world, connect));
    rig.trainer.set_parameters(initial_parameters(1));
    if (world.place().process == 1) throw NumericError("enough");
    rig.trainer.step(samples, 1e-3);
  });
  for (const std::size_t process : {0U, 2U, 3U}) {
    ASSERT_TRUE(errors[process]);
    EXPECT_EQ(errors[process]->code(), ExitCode::peer_lost) << errors[process]->what();
  }
  EXPECT_EQ(errors[1]->code(), ExitCode::numeric);
}

}  // namespace
}  // namespace fpdt
