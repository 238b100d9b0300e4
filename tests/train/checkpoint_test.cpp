// To disk and back: the same bits, on another number of ranks, with another model.
#include "fpdt/train/checkpoint.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/check/check.h"
#include "fpdt/io/file.h"
#include "fpdt/io/model_file.h"
#include "fpdt/io/safetensors.h"
#include "fpdt/train/same_model.h"

#include "cases.h"

namespace fpdt {
namespace {

// The path is unique to this process, because tests run in parallel.
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

// Runs steps 1 to 4 in one go, and with a cut after step 2.
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

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() { rig_.trainer.set_parameters(initial_parameters(5)); }

  Case one_ = make_case(tiny_llama(), 1, 16, 8);
  Rig rig_{one_};
};

TEST_F(Checkpoint, AnotherNumberOfRanksAndStrategyMayGoOn) {
  Case one = make_case(tiny_llama(), 4, 16, 8);
  Rig before(one);
  before.trainer.set_parameters(initial_parameters(5));
  before.trainer.step(random_samples(one.problem, 1, 1), 1e-2);
  const std::string path = fresh_path("ranks");
  save_checkpoint(path, before.trainer, {1, 0, 5, "", 4});
  Case other = make_case(tiny_llama(), 1, 16, 16);
  other.strategy.keep = kStateHomes.back();
  Rig after(other);
  load_checkpoint(path, after.trainer);
  EXPECT_EQ(everything(after.trainer), everything(before.trainer));
}

// Their file has weights of norms less one, which rounds those below a half.
TEST_F(Checkpoint, NormsOfGemmaKeepTheirBits) {
  Case one = make_case(load_model(FPDT_SOURCE_DIR "/tests/fixtures/hf/gemma2"), 2, 16, 8);
  one.strategy.storage = Storage::f32;
  one.strategy.zero = 3;
  Rig before(one);
  before.trainer.set_parameters([](const TensorSpec& tensor) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(0.01F + 0.3F / static_cast<float>(i + 3));
    }
    return values;
  });
  const std::string path = fresh_path("gemma");
  save_checkpoint(path, before.trainer, {1, 0, 5, "", 2});
  Rig after(one);
  load_checkpoint(path, after.trainer);
  EXPECT_EQ(everything(after.trainer), everything(before.trainer));
}

// Ranks that share products hold parts of tensors; the files hold whole ones. A run that goes on
// from them has the bits of one that was never stopped.
TEST_F(Checkpoint, AnyMeshMayGoOn) {
  struct Grid {
    std::int64_t ranks, tensor, ring, kv_heads, nodes = 1;
  };
  for (const Storage storage : {Storage::f32, Storage::bf16}) {
    for (const Grid& grid : {Grid{4, 2, 1, 2}, Grid{4, 4, 1, 2}, Grid{8, 2, 2, 1},
                             Grid{4, 1, 2, 2, 2}, Grid{8, 2, 2, 2, 2}}) {
      ModelSpec model = tiny_llama();
      model.kv_heads = grid.kv_heads;
      model.qkv_bias = true;
      Case one = make_case(model, grid.ranks, 16, 8);
      one.strategy.storage = storage;
      one.strategy.mesh.tensor = grid.tensor;
      one.strategy.mesh.ring = grid.ring;
      if (grid.ring > 1) one.strategy.keys = Keys::gathered;
      one.problem.cluster.nodes = grid.nodes;
      one.problem.cluster.devices_per_node = grid.ranks / grid.nodes;
      if (grid.nodes > 1) one.strategy.zero_groups = ZeroGroups::hybrid;
      const auto samples = [&](std::uint64_t step) { return random_samples(one.problem, 1, step); };
      Rig whole(one);
      whole.trainer.set_parameters(initial_parameters(5));
      whole.trainer.step(samples(1), 1e-2);
      const std::string path = fresh_path("mesh");
      save_checkpoint(path, whole.trainer, {1, 0, 5, "", grid.ranks});
      const double loss = whole.trainer.step(samples(2), 1e-2).loss;
      Rig resumed(one);
      load_checkpoint(path, resumed.trainer);
      EXPECT_EQ(resumed.trainer.step(samples(2), 1e-2).loss, loss);
      EXPECT_EQ(everything(resumed.trainer), everything(whole.trainer));
      Case plain = make_case(model, 2, 16, 16);
      plain.strategy.storage = storage;
      if (grid.nodes > 1) plain.strategy.zero = 1;  // masters apart from parameters, too
      Rig other(plain);
      load_checkpoint(path, other.trainer);
      const std::string again = fresh_path("mesh_again");
      save_checkpoint(again, other.trainer, {1, 0, 5, "", grid.ranks});
      for (const auto& file : std::filesystem::directory_iterator(path)) {
        EXPECT_EQ(read_file(file.path(), 1 << 24),
                  read_file(again + "/" + file.path().filename().string(), 1 << 24))
            << file.path();
      }
    }
  }
}

TEST_F(Checkpoint, WeightsAloneStartATraining) {
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

// The error of loading the checkpoint.
std::string load_error(const std::string& path, Trainer& trainer) {
  try {
    load_checkpoint(path, trainer);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST_F(Checkpoint, NamesTheTensorOfAFlippedBit) {
  Case one = make_case(tiny_llama(), 1, 16, 8);
  one.strategy.storage = Storage::bf16;  // masters beside the parameters
  Rig rig(one);
  rig.trainer.set_parameters(initial_parameters(5));
  const std::string path = fresh_path("flipped");
  save_checkpoint(path, rig.trainer, {1, 0, 5, "", 1});
  for (const char* name : {"model.safetensors", "fpdt_state.safetensors"}) {
    const std::string file = path + "/" + name;
    const std::string whole = read_file(file, 1 << 24);
    const std::vector<SafetensorsEntry> entries = SafetensorsFile(file).entries();
    std::size_t end = whole.size();
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      end -= static_cast<std::size_t>(entry->bytes());
      std::string flipped = whole;
      flipped[end] = static_cast<char>(flipped[end] ^ 4);
      write_file_atomically(file, flipped);
      const std::string error = load_error(path, rig.trainer);
      EXPECT_NE(error.find(fmt::format("{}: {}: the bytes", file, entry->name)), std::string::npos)
          << error;
    }
    // A file of another run is whole, but trainer.json refers to a different one.
    const std::string other = fresh_path("other_run");
    rig.trainer.set_parameters(initial_parameters(6));
    save_checkpoint(other, rig.trainer, {1, 0, 5, "", 1});
    std::filesystem::copy_file(other + "/" + name, file,
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_NE(load_error(path, rig.trainer).find("its header has the checksum"), std::string::npos);
    write_file_atomically(file, whole);
  }
  EXPECT_EQ(load_error(path, rig.trainer), "");
}

TEST_F(Checkpoint, NoticesAChangedDigitOfItsProgress) {
  const std::string path = fresh_path("digit");
  save_checkpoint(path, rig_.trainer, {1, 77, 5, "", 1});
  const std::string file = path + "/trainer.json";
  std::string text = read_file(file, 1000);
  text.replace(text.find("77"), 2, "78");
  write_file_atomically(file, text);
  EXPECT_NE(load_error(path, rig_.trainer).find("does not match its checksum"), std::string::npos);
  text.erase(text.rfind(",\"checksum\""));
  write_file_atomically(file, text + "}");
  EXPECT_EQ(load_checkpoint(path, rig_.trainer).cursor, 78);
}

// Rewrites a file of tensors as it was before checksums existed.
void drop_checksums(const std::string& path) {
  std::string file = read_file(path, 1 << 24);
  const std::string key = "\"fpdt_xxh3\":\"";
  const std::size_t at = file.find(key);
  const std::size_t end = file.find('"', at + key.size()) + 2;  // its quote and comma
  file.insert(file.find("}}") + 2, end - at, ' ');
  file.erase(at, end - at);
  write_file_atomically(path, file);
}

TEST_F(Checkpoint, OneFromBeforeChecksumsIsRead) {
  const std::string path = fresh_path("old");
  save_checkpoint(path, rig_.trainer, {});
  drop_checksums(path + "/model.safetensors");
  drop_checksums(path + "/fpdt_state.safetensors");
  write_file_atomically(path + "/trainer.json",
                        R"({"fpdt_checkpoint":1,"step":3,"cursor":77,"seed":"5",)"
                        R"("schedule":"0123","ranks":2})");
  Rig resumed(one_);
  EXPECT_EQ(load_checkpoint(path, resumed.trainer), (Progress{3, 77, 5, "0123", 2}));
  EXPECT_EQ(everything(resumed.trainer), everything(rig_.trainer));
}

TEST_F(Checkpoint, ValuesThatAreNotFiniteAreNeitherSavedNorLoaded) {
  const std::string path = fresh_path("finite");
  save_checkpoint(path, rig_.trainer, {1, 0, 0, "", 1});
  for (const char* kind : {"weight", "moment1", "moment2"}) {
    const std::vector<float> good = rig_.trainer.tensor("layers.1.up.weight", kind);
    std::vector<float> bad = good;
    bad[3] = std::numeric_limits<float>::quiet_NaN();
    bad[4] = std::numeric_limits<float>::infinity();
    rig_.trainer.set_tensor("layers.1.up.weight", kind, bad);
    try {
      save_checkpoint(path, rig_.trainer, {2, 0, 0, "", 1});
      FAIL() << "NaN was saved";
    } catch (const NumericError& error) {
      EXPECT_NE(std::string(error.what()).find("of layers.1.up.weight: element 3 is nan"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(saved_step(path), 1);
    rig_.trainer.set_tensor("layers.1.up.weight", kind, good);
  }
  EXPECT_EQ(load_error(path, rig_.trainer), "");
  // As another program may write it.
  const std::string file = path + "/fpdt_state.safetensors";
  drop_checksums(file);
  std::string bytes = read_file(file, 1 << 24);
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\x80\x7f", 4));
  write_file_atomically(file, bytes);
  std::string trainer = read_file(path + "/trainer.json", 1000);
  trainer.erase(trainer.find(",\"model\""));
  write_file_atomically(path + "/trainer.json", trainer + "}");
  const std::string error = load_error(path, rig_.trainer);
  EXPECT_NE(error.find("fpdt_state.safetensors: moment2."), std::string::npos) << error;
  EXPECT_NE(error.find("is inf"), std::string::npos) << error;
}

TEST_F(Checkpoint, AFullDiskLeavesTheEarlierOne) {
  const std::string path = fresh_path("full");
  save_checkpoint(path, rig_.trainer, {1, 0, 0, "", 1});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {100U, 1000U, 10000U}) {
    const rlimit small{bytes, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(save_checkpoint(path, rig_.trainer, {2, 0, 0, "", 1}), IoError) << bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(load_checkpoint(path, rig_.trainer).step, 1) << bytes;
    EXPECT_FALSE(std::filesystem::exists(path + "/fpdt_stage"));
  }
  static_cast<void>(std::signal(SIGXFSZ, handler));
}

TEST_F(Checkpoint, ADamagedPendingOneNamesTheWayBack) {
  const std::string path = fresh_path("way_back");
  save_checkpoint(path, rig_.trainer, {1, 0, 0, "", 1});
  {
    CheckpointDirectory directory(path);
    save_checkpoint(&directory, rig_.trainer, {2, 0, 0, "", 1}, {});
  }
  EXPECT_EQ(load_checkpoint(path, rig_.trainer).step, 2);
  const std::string pending = CheckpointDirectory::pending(path);
  write_file_atomically(pending + "/model.safetensors", "damaged");
  EXPECT_NE(load_error(path, rig_.trainer).find("remove " + pending), std::string::npos);
  std::filesystem::remove_all(pending);
  EXPECT_EQ(load_checkpoint(path, rig_.trainer).step, 1);
}

TEST_F(Checkpoint, ALaterOneReplacesIt) {
  const std::string path = fresh_path("replace");
  save_checkpoint(path, rig_.trainer, {1, 0, 0, "", 1});
  save_checkpoint(path, rig_.trainer, {2, 0, 0, "", 1});
  EXPECT_EQ(load_checkpoint(path, rig_.trainer).step, 2);
  const std::filesystem::directory_iterator entries(path);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 4);
}

TEST_F(Checkpoint, WhatIsNoCheckpointIsNeitherReplacedNorRead) {
  const std::string path = fresh_path("precious");
  std::filesystem::create_directory(path);
  write_file_atomically(path + "/thesis.txt", "years of work");
  EXPECT_THROW(save_checkpoint(path, rig_.trainer, {}), InputError);
  EXPECT_TRUE(std::filesystem::exists(path + "/thesis.txt"));
  EXPECT_THROW(load_checkpoint(path, rig_.trainer), InputError);
}

TEST_F(Checkpoint, AnotherModelIsRefusedByName) {
  const std::string path = fresh_path("other");
  save_checkpoint(path, rig_.trainer, {});
  Case other = one_;
  other.problem.model.kinds.front().rotary.theta = 5000;
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

// Each of them alone: what a router does is no shape that would give it away.
TEST(SameModel, ComparesWhatRoutersDo) {
  const std::string directory = FPDT_SOURCE_DIR "/tests/fixtures/hf/glm4_moe";
  const std::string path = directory + "/config.json";
  const ModelSpec same = load_model(directory);
  EXPECT_NO_THROW(require_same_model(path, same));
  const auto refusal = [&](const std::function<void(ModelSpec&)>& change) -> std::string {
    ModelSpec other = same;
    change(other);
    try {
      require_same_model(path, other);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* key) {
    return text.find(key) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal([](ModelSpec& m) { m.sigmoid_router = false; }), "sigmoid_router"));
  EXPECT_TRUE(has(refusal([](ModelSpec& m) { m.expert_scale = 1; }), "expert_scale"));
  EXPECT_TRUE(has(refusal([](ModelSpec& m) { m.shared_feed_forward = 12; }), "shared_feed"));
  EXPECT_TRUE(has(refusal([](ModelSpec& m) { m.leading = {0, 0}; }), "dense_feed_forward"));
  EXPECT_EQ(refusal([](ModelSpec& m) { m.name = "other", m.source = "hand"; }), "");
}

TEST_F(Checkpoint, ADamagedOneIsRefused) {
  const std::string path = fresh_path("damaged");
  save_checkpoint(path, rig_.trainer, {});
  for (const char* text : {"", "{", "{\"fpdt_checkpoint\":2}", "[]"}) {
    write_file_atomically(path + "/trainer.json", text);
    EXPECT_THROW(load_checkpoint(path, rig_.trainer), InputError) << text;
  }
}

}  // namespace
}  // namespace fpdt
