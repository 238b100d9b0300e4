// What the trainer promises the kernels, and the inputs that it refuses.
#include "fpdt/train/feeds.h"

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

#include "cases.h"

namespace fpdt {
namespace {

class Feeds : public testing::Test {
 protected:
  Feeds() {
    one.problem.documents = true;
    schedule = lower(one.problem, one.strategy).schedule.schedule();
  }

  Buffer& buffer(std::string_view name) {
    return *std::find_if(schedule.buffers.begin(), schedule.buffers.end(),
                         [&](const Buffer& each) { return each.name == name; });
  }
  bool refused() const {
    try {
      require_feeds(schedule, one.problem.model);
      return false;
    } catch (const InputError& error) {
      return std::string_view(error.what()).find("R105") != std::string_view::npos;
    }
  }

  Case one = make_case(tiny_gpt(), 2, 24, 8);
  Schedule schedule;
};

TEST_F(Feeds, AreThoseOfAPlanner) { EXPECT_FALSE(refused()); }

TEST_F(Feeds, ServeAsTheirNamesSay) {
  for (Feed& feed : schedule.feeds) {
    if (feed.holds == Holds::labels) feed.holds = Holds::tokens;
  }
  EXPECT_TRUE(refused());
}

TEST_F(Feeds, HaveNamesInTheOldFormat) {
  schedule.feeds.clear();
  EXPECT_FALSE(refused());
  std::swap(buffer("tokens_input").name, buffer("labels_input").name);
  EXPECT_TRUE(refused());
}

TEST_F(Feeds, HaveNamesThatTrainingKnows) {
  buffer("step_input").name = "steps_input";
  EXPECT_TRUE(refused());
}

TEST_F(Feeds, AreWithinTheBoundsOfTheModel) {
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (auto* embed = std::get_if<Embedding>(&op.body)) embed->vocabulary -= 1;
    }
  }
  EXPECT_TRUE(refused());
}

TEST_F(Feeds, HaveAsManyPositionsAsTheModel) {
  for (Block& block : schedule.blocks) {
    for (Op& op : block.ops) {
      if (auto* back = std::get_if<EmbeddingBackward>(&op.body)) back->position_count -= 1;
    }
  }
  EXPECT_TRUE(refused());
}

}  // namespace
}  // namespace fpdt
