// Checkpoints of tensors that are cut between ranks are those of whole tensors.
#include <filesystem>
#include <map>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/io/file.h"
#include "fpdt/io/hf_weights.h"
#include "fpdt/train/checkpoint.h"

#include "cases.h"
#include "cut_states.h"
#include "far_backend.h"
#include "process_worlds.h"

namespace fpdt {
namespace {

const Progress kProgress{3, 77, 5, "0123", 6};

class CheckpointCuts : public testing::TestWithParam<Family> {
 protected:
  CheckpointCuts()
      : one_(make_case(model(), 6, kCutTokens, kCutTokens)), cut_(verified(cut_model(model()))) {
    one_.problem.documents = false;  // cut_model takes none
    std::filesystem::remove_all(path_);
  }
  ~CheckpointCuts() override { std::filesystem::remove_all(path_); }

  static ModelSpec model() { return GetParam() == Family::gpt ? tiny_gpt() : tiny_llama(); }
  // Weights and moments, of which no two tensors have the same.
  void set(Trainer& trainer) const {
    trainer.set_parameters(initial_parameters(5));
    for (const TensorSpec& spec : model_tensors(model())) {
      for (const char* kind : {"moment1", "moment2"}) {
        std::vector<float> values = trainer.tensor(spec.name, "weight");
        for (float& value : values) value *= kind[6] == '1' ? 3.0F : -5.0F;
        trainer.set_tensor(spec.name, kind, values);
      }
    }
  }
  [[nodiscard]] std::map<std::string, std::string> saved(const Trainer& trainer) const {
    save_checkpoint(path_, trainer, kProgress);
    std::map<std::string, std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      files[file.path().filename()] = read_file(file.path(), 1 << 24);
    }
    return files;
  }
  // The files of a run whose tensors are not cut.
  [[nodiscard]] std::map<std::string, std::string> saved_whole() const {
    Case one = make_case(model(), 1, kCutTokens, kCutTokens);
    one.strategy.storage = Storage::bf16;
    Rig rig(one);
    set(rig.trainer);
    return saved(rig.trainer);
  }
  [[nodiscard]] static std::vector<std::vector<float>> everything(const Trainer& trainer) {
    return {all_of(trainer, "master"), all_of(trainer, "parameter"), all_of(trainer, "moment1"),
            all_of(trainer, "moment2")};
  }

  std::string path_ =
      testing::TempDir() + fmt::format("fpdt_checkpoint_cuts_{}_{}", word(GetParam()), getpid());
  Case one_;
  VerifiedSchedule cut_;
};

TEST_P(CheckpointCuts, AreSavedWithTheSameBytes) {
  const std::map<std::string, std::string> whole = saved_whole();
  ASSERT_EQ(whole.size(), 4U);
  std::filesystem::remove_all(path_);
  Trainer cut(cut_, one_.problem, Rig::one_thread());
  set(cut);
  EXPECT_TRUE(saved(cut) == whole);
}

// Each of six processes reads what its rank holds, and sends it.
TEST_P(CheckpointCuts, AreLoadedAndSavedByProcesses) {
  const std::map<std::string, std::string> whole = saved_whole();
  Trainer expected(cut_, one_.problem, Rig::one_thread());
  set(expected);
  const std::vector<std::vector<float>> states = everything(expected);
  for (const bool far : {false, true}) {
    const auto errors = run_processes(6, [&](World& world, const Connect& connect) {
      RankOptions options = in_process(world, connect);
      if (far) options.make_backend = make_far_backend;
      Trainer cut(cut_, one_.problem, options);
      EXPECT_EQ(load_checkpoint(path_, cut), kProgress);
      EXPECT_EQ(everything(cut), states);
      save_checkpoint(path_ + "_again", cut, kProgress);
      if (!world.speaks()) return;
      for (const auto& [name, text] : whole) {
        EXPECT_EQ(read_file(path_ + "_again/" + name, 1 << 24), text) << name;
      }
      std::filesystem::remove_all(path_ + "_again");
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  }
}

// Weights set master and parameter, and what an uncut run goes on with.
TEST_P(CheckpointCuts, WeightsAreThoseOfAnUncutRun) {
  Trainer cut(cut_, one_.problem, Rig::one_thread());
  set(cut);
  static_cast<void>(saved(cut));
  Case one = make_case(model(), 2, kCutTokens, kCutTokens);
  one.strategy.storage = Storage::bf16;
  Rig whole(one);
  EXPECT_EQ(load_checkpoint(path_, whole.trainer), kProgress);
  EXPECT_EQ(everything(whole.trainer), everything(cut));
  Trainer loaded(cut_, one_.problem, Rig::one_thread());
  load_weights(path_, loaded);
  load_weights(path_, whole.trainer);
  EXPECT_EQ(everything(loaded), everything(whole.trainer));
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointCuts, testing::Values(Family::llama, Family::gpt),
                         [](const auto& one) { return std::string(word(one.param)); });

}  // namespace
}  // namespace fpdt
