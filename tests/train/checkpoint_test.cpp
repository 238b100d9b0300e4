// To disk and back: the same bits, another number of ranks, another model.
#include "fpdt/train/checkpoint.h"

#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/io/file.h"

#include "cases.h"
#include "check.h"

namespace fpdt {
namespace {

// Of this process alone: tests run beside each other.
std::string fresh_path(const std::string& name) {
  const std::string path =
      testing::TempDir() + fmt::format("fpdt_checkpoint_{}_{}", name, getpid());
  std::filesystem::remove_all(path);
  return path;
}

std::vector<std::vector<float>> everything(const Trainer& trainer) {
  return {all_of(trainer, "weight"), all_of(trainer, "parameter"), all_of(trainer, "moment1"),
          all_of(trainer, "moment2")};
}

class Resume : public testing::TestWithParam<Storage> {};

// Steps 1 to 4 in one go, and cut after step 2.
TEST_P(Resume, GivesTheSameBits) {
  Case one = make_case(tiny_gpt(), 2, 16, 8);
  one.strategy.storage = GetParam();
  const auto samples = [&](std::uint64_t step) { return random_samples(one.problem, 1, step); };
  Rig whole(one);
  whole.trainer.set_parameters(initial_parameters(5));
  std::vector<double> losses;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    losses.push_back(whole.trainer.step(samples(step), 1e-2).loss);
  }
  const std::string path = fresh_path(fmt::format("resume_{}", word(GetParam())));
  {
    Rig begun(one);
    begun.trainer.set_parameters(initial_parameters(5));
    for (std::uint64_t step = 1; step <= 2; ++step) begun.trainer.step(samples(step), 1e-2);
    save_checkpoint(path, begun.trainer, {2, 77, 5, "0123", 2});
  }
  Rig resumed(one);
  const Progress progress = load_checkpoint(path, resumed.trainer);
  EXPECT_EQ(progress, (Progress{2, 77, 5, "0123", 2}));
  EXPECT_EQ(resumed.trainer.steps_done(), 2);
  for (std::uint64_t step = 3; step <= 4; ++step) {
    EXPECT_EQ(resumed.trainer.step(samples(step), 1e-2).loss, losses[step - 1]);
  }
  EXPECT_EQ(everything(resumed.trainer), everything(whole.trainer));
}

INSTANTIATE_TEST_SUITE_P(Storages, Resume, testing::Values(Storage::f32, Storage::bf16),
                         [](const auto& one) { return std::string(word(one.param)); });

TEST(Checkpoint, AnotherNumberOfRanksAndStrategyMayGoOn) {
  Case one = make_case(tiny_llama(), 4, 16, 8);
  Rig before(one);
  before.trainer.set_parameters(initial_parameters(5));
  before.trainer.step(random_samples(one.problem, 1, 1), 1e-2);
  const std::string path = fresh_path("ranks");
  save_checkpoint(path, before.trainer, {1, 0, 5, "", 4});
  Case other = make_case(tiny_llama(), 1, 16, 16);
  other.strategy.optimizer_offload = true;
  Rig after(other);
  load_checkpoint(path, after.trainer);
  EXPECT_EQ(everything(after.trainer), everything(before.trainer));
}

TEST(Checkpoint, WeightsAloneStartATraining) {
  const Case one = make_case(tiny_llama(), 2, 16, 8);
  Rig before(one);
  before.trainer.set_parameters(initial_parameters(5));
  before.trainer.step(random_samples(one.problem, 1, 1), 1e-2);
  const std::string path = fresh_path("weights");
  save_checkpoint(path, before.trainer, {});
  std::filesystem::remove(path + "/trainer.json");
  std::filesystem::remove(path + "/fpdt_state.safetensors");
  Rig after(one);
  EXPECT_THROW(load_checkpoint(path, after.trainer), InputError);
  load_weights(path, after.trainer);
  EXPECT_EQ(all_of(after.trainer, "weight"), all_of(before.trainer, "weight"));
  EXPECT_EQ(after.trainer.steps_done(), 0);
}

TEST(Checkpoint, ALaterOneReplacesIt) {
  const Case one = make_case(tiny_llama(), 1, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(5));
  const std::string path = fresh_path("replace");
  save_checkpoint(path, rig.trainer, {1, 0, 0, "", 1});
  save_checkpoint(path, rig.trainer, {2, 0, 0, "", 1});
  EXPECT_EQ(load_checkpoint(path, rig.trainer).step, 2);
  EXPECT_FALSE(std::filesystem::exists(path + ".last"));
}

TEST(Checkpoint, WhatIsNoCheckpointIsNeitherReplacedNorRead) {
  const Case one = make_case(tiny_llama(), 1, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(5));
  const std::string path = fresh_path("precious");
  std::filesystem::create_directory(path);
  write_file_atomically(path + "/thesis.txt", "years of work");
  EXPECT_THROW(save_checkpoint(path, rig.trainer, {}), InputError);
  EXPECT_TRUE(std::filesystem::exists(path + "/thesis.txt"));
  EXPECT_THROW(load_checkpoint(path, rig.trainer), InputError);
}

TEST(Checkpoint, AnotherModelIsRefusedByName) {
  const Case one = make_case(tiny_llama(), 1, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(5));
  const std::string path = fresh_path("other");
  save_checkpoint(path, rig.trainer, {});
  Case other = one;
  other.problem.model.rotary.theta = 5000;
  other.problem.model.feed_forward = 24;
  Rig wrong(other);
  try {
    load_checkpoint(path, wrong.trainer);
    FAIL() << "another model went unnoticed";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("feed_forward: the schedule has 24, the directory 12"), std::string::npos);
    EXPECT_NE(text.find("rotary.theta"), std::string::npos);
  }
}

TEST(Checkpoint, ADamagedOneIsRefused) {
  const Case one = make_case(tiny_llama(), 1, 16, 8);
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(5));
  const std::string path = fresh_path("damaged");
  save_checkpoint(path, rig.trainer, {});
  for (const char* text : {"", "{", "{\"fpdt_checkpoint\":2}", "[]"}) {
    write_file_atomically(path + "/trainer.json", text);
    EXPECT_THROW(load_checkpoint(path, rig.trainer), InputError) << text;
  }
}

}  // namespace
}  // namespace fpdt
