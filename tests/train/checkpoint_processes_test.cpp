// Checkpoints of many processes: the bytes are those of one process, and everybody learns of an
// error.
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <limits>
#include <map>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/io/checksum.h"
#include "fpdt/io/file.h"
#include "fpdt/train/checkpoint.h"

#include "cases.h"
#include "process_worlds.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

// A file of tensors holds so many bytes of the tiny models: several of each.
constexpr std::int64_t kSmallShard = 4000;

std::string scratch_path(const std::string& name) {
  const std::string path = testing::TempDir() + fmt::format("fpdt_together_{}_{}", name, getpid());
  fs::remove_all(path);
  return path;
}

// The contents of all files, by name.
std::map<std::string, std::string> contents_of(const std::string& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(directory)) {
    contents[entry.path().filename().string()] = read_file(entry.path().string(), 1 << 24);
  }
  return contents;
}

std::vector<std::vector<float>> weights_of(const Trainer& trainer) {
  return {all_of(trainer, "weight"), all_of(trainer, "parameter"), all_of(trainer, "moment1"),
          all_of(trainer, "moment2")};
}

Case case_of(const ModelSpec& model, std::int64_t ranks, Storage storage = Storage::bf16) {
  Case one = make_case(model, ranks, 16, 8);
  one.strategy.storage = storage;
  return one;
}

// Runs `work` in each process, which must throw nothing.
void on_each(std::int64_t processes, const ProcessMain& work) {
  for (const auto& error : run_processes(processes, work)) EXPECT_FALSE(error) << error->what();
}

// The message that all processes throw.
std::string error_of_all(std::int64_t processes, ExitCode code, const ProcessMain& work) {
  const auto errors = run_processes(processes, work);
  for (const auto& error : errors) {
    EXPECT_TRUE(error && errors[0] && error->what() == std::string(errors[0]->what()));
    EXPECT_TRUE(error && error->code() == code) << error->what();
  }
  return errors[0] ? errors[0]->what() : "";
}

// A checkpoint of one rank after a step, and what it holds.
class CheckpointsTogether : public testing::Test {
 protected:
  void SetUp() override {
    rig_.trainer.set_parameters(initial_parameters(5));
    rig_.trainer.step(random_samples(one_.problem, 1, 1), 1e-2);
    save_checkpoint(path_, rig_.trainer, progress_, kSmallShard);
    values_ = weights_of(rig_.trainer);
  }
  void TearDown() override { fs::remove_all(path_); }

  Case one_ = case_of(tiny_gpt(), 1);
  Rig rig_{one_};
  Progress progress_{1, 77, 5, "0123", 1};
  std::string path_ = scratch_path("one");
  std::vector<std::vector<float>> values_;
};

// From one process to 1, 2 and 4 of them, which hold the same and save the same bytes, and back.
TEST_F(CheckpointsTogether, DoNotDependOnTheNumberOfProcesses) {
  const auto expected = contents_of(path_);
  EXPECT_GE(expected.size(), 10U);
  for (const std::int64_t processes : {1, 2, 4}) {
    const std::string saved = scratch_path("saved");
    const Case one = case_of(tiny_gpt(), processes);
    on_each(processes, [&](World& world, const Connect& connect) {
      Rig rig(one, in_process(world, connect));
      EXPECT_EQ(load_checkpoint(path_, rig.trainer), progress_);
      EXPECT_EQ(weights_of(rig.trainer), values_);
      save_checkpoint(saved, rig.trainer, progress_, kSmallShard);
    });
    EXPECT_EQ(contents_of(saved), expected) << processes;
    // Ranks that are threads of one process.
    Rig threads(one);
    load_checkpoint(saved, threads.trainer);
    EXPECT_EQ(weights_of(threads.trainer), values_) << processes;
    fs::remove_all(saved);
  }
}

TEST_F(CheckpointsTogether, ResumeToTheSameBits) {
  const Case one = case_of(tiny_gpt(), 2);
  const auto samples = [&](std::uint64_t step) { return random_samples(one.problem, 1, step); };
  Rig whole(one);
  load_checkpoint(path_, whole.trainer);
  whole.trainer.step(samples(2), 1e-2);
  const double loss = whole.trainer.step(samples(3), 1e-2).loss;
  const std::string saved = scratch_path("resumed");
  on_each(2, [&](World& world, const Connect& connect) {
    {
      Rig begun(one, in_process(world, connect));
      load_checkpoint(path_, begun.trainer);
      begun.trainer.step(samples(2), 1e-2);
      save_checkpoint(saved, begun.trainer, {2, 0, 5, "", 2});
    }
    Rig resumed(one, in_process(world, connect));
    load_checkpoint(saved, resumed.trainer);
    EXPECT_EQ(resumed.trainer.step(samples(3), 1e-2).loss, loss);
    EXPECT_EQ(weights_of(resumed.trainer), weights_of(whole.trainer));
  });
  fs::remove_all(saved);
}

// All layouts of Hugging Face, in shards and in one file.
TEST_F(CheckpointsTogether, WeightsAreReadByRange) {
  for (const ModelSpec& model : {tiny_llama(), tiny_gpt(), tiny_neox()}) {
    for (const std::int64_t shard_bytes : {kSmallShard, kShardBytes}) {
      const std::string path = scratch_path("weights");
      Rig before(case_of(model, 1, Storage::f32));
      before.trainer.set_parameters(initial_parameters(8));
      save_checkpoint(path, before.trainer, {}, shard_bytes);
      for (const bool is_checkpoint : {true, false}) {
        if (!is_checkpoint) fs::remove(path + "/trainer.json");
        on_each(4, [&](World& world, const Connect& connect) {
          Rig rig(case_of(model, 4), in_process(world, connect));
          rig.trainer.set_tensor("embed.weight", "moment1",
                                 std::vector<float>(index(model.vocabulary * 16), 3));
          load_weights(path, rig.trainer);
          EXPECT_EQ(all_of(rig.trainer, "weight"), all_of(before.trainer, "weight"));
          EXPECT_EQ(all_of(rig.trainer, "moment1"), all_of(before.trainer, "moment1"));
        });
      }
      fs::remove_all(path);
    }
  }
}

// Whichever process reads the damaged bytes, all of them stop with the same message.
TEST_F(CheckpointsTogether, NameTheTensorOfAFlippedBit) {
  const auto expected = contents_of(path_);
  std::int64_t damaged = 0;
  for (const auto& [name, text] : expected) {
    if (!name.ends_with(".safetensors")) continue;
    std::string flipped = text;
    flipped.back() = static_cast<char>(flipped.back() ^ 4);
    write_file_atomically(path_ + "/" + name, flipped);
    const std::string error =
        error_of_all(2, ExitCode::bad_input, [&](World& world, const Connect& connect) {
          Rig rig(case_of(tiny_gpt(), 2), in_process(world, connect));
          load_checkpoint(path_, rig.trainer);
        });
    EXPECT_THAT(error, testing::ContainsRegex("rank [01]: .*" + name + ": .*: the bytes"));
    write_file_atomically(path_ + "/" + name, text);
    ++damaged;
  }
  EXPECT_GE(damaged, 6);
}

TEST_F(CheckpointsTogether, NoticeAMissingFile) {
  const auto expected = contents_of(path_);
  for (const auto& [name, text] : expected) {
    if (name == "trainer.json") continue;
    fs::remove(path_ + "/" + name);
    const std::string error =
        error_of_all(2, ExitCode::file_system, [&](World& world, const Connect& connect) {
          Rig rig(case_of(tiny_gpt(), 2), in_process(world, connect));
          load_checkpoint(path_, rig.trainer);
        });
    EXPECT_THAT(error, testing::HasSubstr(name));
    write_file_atomically(path_ + "/" + name, text);
  }
}

TEST_F(CheckpointsTogether, NoticeAnIndexThatDisagrees) {
  const std::string file = path_ + "/fpdt_state.safetensors.index.json";
  const std::string text = read_file(file, 1 << 20);
  const auto error_with = [&](std::string changed) {
    EXPECT_NE(changed, text);
    write_file_atomically(file, changed);
    try {
      load_checkpoint(path_, rig_.trainer);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string swapped = text;  // a tensor, said to be in the file beside its own
  swapped.replace(swapped.find("-00001-of"), 6, "-00002");
  EXPECT_THAT(error_with(swapped), testing::ContainsRegex("is not in fpdt_state-00002-of.*T102"));
  std::string shorter = text;  // without the last tensor
  shorter.erase(shorter.rfind(",\n    \""), shorter.rfind("\n  }") - shorter.rfind(",\n    \""));
  EXPECT_THAT(error_with(shorter), testing::HasSubstr("moment2.positions.weight is missing"));
  // Without a whole file.
  std::string fewer = text;
  for (std::size_t at = 0; (at = fewer.find("-00002-of-")) != std::string::npos;) {
    const std::size_t line = fewer.rfind('\n', at);
    fewer.erase(line, fewer.find('\n', at) - line);
  }
  EXPECT_THAT(error_with(fewer), testing::HasSubstr("names no tensor of fpdt_state-00002-of"));
  write_file_atomically(file, text);
  EXPECT_EQ(load_checkpoint(path_, rig_.trainer), progress_);
}

// Every file is of another checkpoint in turn, its checksums right.
TEST_F(CheckpointsTogether, NoticeAFileOfAnotherCheckpoint) {
  const std::string other = scratch_path("other");
  rig_.trainer.set_parameters(initial_parameters(6));
  rig_.trainer.step(random_samples(one_.problem, 1, 1), 1e-2);
  save_checkpoint(other, rig_.trainer, progress_, kSmallShard);
  for (const auto& [name, text] : contents_of(path_)) {
    if (!name.ends_with(".safetensors")) continue;
    write_file_atomically(path_ + "/" + name, read_file(other + "/" + name, 1 << 24));
    try {
      load_checkpoint(path_, rig_.trainer);
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(name + ": its header has the checksum"));
    }
    write_file_atomically(path_ + "/" + name, text);
  }
  fs::remove_all(other);
}

TEST_F(CheckpointsTogether, ANaNOfAnyRankIsNotSaved) {
  const auto before = contents_of(path_);
  const std::string error =
      error_of_all(4, ExitCode::numeric, [&](World& world, const Connect& connect) {
        Rig rig(case_of(tiny_gpt(), 4), in_process(world, connect));
        load_checkpoint(path_, rig.trainer);
        std::vector<float> values = rig.trainer.tensor("layers.1.up.weight", "moment2");
        values[values.size() - 3] = std::numeric_limits<float>::quiet_NaN();
        rig.trainer.set_tensor("layers.1.up.weight", "moment2", values);
        save_checkpoint(path_, rig.trainer, {2, 0, 0, "", 4}, kSmallShard);
      });
  EXPECT_THAT(error, testing::HasSubstr("moment2 of layers.1.up.weight: element 317 is nan"));
  EXPECT_EQ(contents_of(path_), before);
}

TEST_F(CheckpointsTogether, AFullDiskIsEverybodysError) {
  const auto before = contents_of(path_);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {100U, 1000U, 3000U}) {
    const std::string error =
        error_of_all(2, ExitCode::file_system, [&](World& world, const Connect& connect) {
          Rig rig(case_of(tiny_gpt(), 2), in_process(world, connect));
          load_checkpoint(path_, rig.trainer);
          world.gather("");
          const rlimit small{bytes, limit.rlim_max};
          if (world.speaks()) {
            EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
          }
          world.gather("");
          save_checkpoint(path_, rig.trainer, {2, 0, 0, "", 2}, kSmallShard);
        });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THAT(error, testing::StartsWith("rank 0: ")) << bytes;
    EXPECT_EQ(contents_of(path_), before) << bytes;
  }
  static_cast<void>(std::signal(SIGXFSZ, handler));
}

// What earlier versions wrote, to the byte.
TEST_F(CheckpointsTogether, OneFileOfEachHasTheSameBytesAsEver) {
  for (const auto& [storage, expected] : {std::pair(Storage::f32, "5a743c50284e5d5f"),
                                          std::pair(Storage::bf16, "ddb65ff308d02335")}) {
    for (const std::int64_t processes : {1, 4}) {
      const std::string path = scratch_path("ever");
      const Case one = case_of(tiny_gpt(), processes, storage);
      on_each(processes, [&](World& world, const Connect& connect) {
        Rig rig(one, in_process(world, connect));
        rig.trainer.set_parameters(initial_parameters(5));
        save_checkpoint(path, rig.trainer, {2, 77, 5, "0123", 2});
      });
      std::string all;
      for (const char* name :
           {"config.json", "model.safetensors", "fpdt_state.safetensors", "trainer.json"}) {
        all += read_file(fmt::format("{}/{}", path, name), 1 << 24);
      }
      EXPECT_EQ(checksum_digits(checksum(all)), expected);
      EXPECT_EQ(contents_of(path).size(), 4U);
      fs::remove_all(path);
    }
  }
}

}  // namespace
}  // namespace fpdt
