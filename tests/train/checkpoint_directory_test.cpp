// The contents of the directory after each step of a save, and what a run finds there after a kill.
#include "fpdt/train/checkpoint_directory.h"

#include <filesystem>
#include <set>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/train/trainer_file.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

// In the order in which they move.
const std::vector<std::string> kFourFiles{"trainer.json", "config.json", "fpdt_state.safetensors",
                                          "model.safetensors"};

class Saves : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + fmt::format("fpdt_saves_{}", getpid());
    fs::remove_all(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  // Writes the four files, each with `text`.
  static void fill(const std::string& directory, const std::string& text) {
    for (const std::string& name : kFourFiles) {
      write_file_atomically(fmt::format("{}/{}", directory, name), contents(name, text));
    }
  }
  static std::string contents(std::string_view name, const std::string& text) {
    return name == "trainer.json" ? R"({"fpdt_checkpoint":2,"of":")" + text + "\"}" : text;
  }
  static void save(CheckpointDirectory& directory, const std::string& text) {
    fill(directory.begin(), text);
    directory.finish();
  }
  // The text of the checkpoint that a reader finds; "mixed" if its files are from several.
  [[nodiscard]] std::string found() const {
    const auto newest = [&](const std::string& name) {
      return read_file(CheckpointDirectory::file(path_, name), 100);
    };
    const std::string text = newest("config.json");
    for (const std::string& name : kFourFiles) {
      if (newest(name) != contents(name, text)) return "mixed";
    }
    return text;
  }
  [[nodiscard]] std::string file(std::string_view name) const {
    return fmt::format("{}/{}", path_, name);
  }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

  std::string path_;
};

TEST_F(Saves, AreInPlaceOnceConfirmed) {
  CheckpointDirectory directory(path_);
  save(directory, "1");
  EXPECT_TRUE(directory.is_pending());
  EXPECT_FALSE(fs::exists(file("trainer.json")));
  EXPECT_EQ(found(), "1");
  directory.confirm();
  EXPECT_EQ(found(), "1");
  EXPECT_EQ(entries(), kFourFiles.size());
  save(directory, "2");
  EXPECT_EQ(read_file(file("config.json"), 10), "1");
  EXPECT_EQ(found(), "2");
  directory.confirm();
  EXPECT_EQ(read_file(file("config.json"), 10), "2");
  EXPECT_EQ(entries(), kFourFiles.size());
}

TEST_F(Saves, KeepTheEarlierOneWhenRejected) {
  CheckpointDirectory directory(path_);
  save(directory, "1");
  directory.confirm();
  save(directory, "2");
  directory.reject();
  EXPECT_EQ(found(), "1");
  EXPECT_EQ(entries(), kFourFiles.size());
  directory.reject();  // there is nothing to reject
  directory.confirm();
  EXPECT_EQ(found(), "1");
}

// A killed run left a checkpoint that no step has proven. A run that does not resume from it can
// neither judge it nor let it replace the one before.
TEST_F(Saves, LeaveAPendingOneToARunThatResumes) {
  { const CheckpointDirectory empty(path_); }
  EXPECT_FALSE(fs::exists(path_));  // nothing was saved
  {
    CheckpointDirectory directory(path_);
    save(directory, "1");
    directory.confirm();
    save(directory, "2");
  }
  {
    std::string refused;
    try {
      const CheckpointDirectory fresh(path_);
    } catch (const InputError& error) {
      refused = error.what();
    }
    EXPECT_NE(refused.find("--resume " + path_), std::string::npos) << refused;
  }
  EXPECT_EQ(found(), "2");
  EXPECT_EQ(read_file(file("config.json"), 10), "1");
  CheckpointDirectory next(path_, true);
  EXPECT_TRUE(next.is_pending());
  next.reject();
  EXPECT_EQ(found(), "1");
}

TEST_F(Saves, GoOnWhereAKillCutTheRenames) {
  for (std::size_t moved = 0; moved <= kFourFiles.size(); ++moved) {
    {
      CheckpointDirectory directory(path_);
      save(directory, "1");
      directory.confirm();
      save(directory, "2");
    }
    for (std::size_t i = 0; i < moved; ++i) {
      fs::rename(fmt::format("{}/{}", CheckpointDirectory::pending(path_), kFourFiles[i]),
                 file(kFourFiles[i]));
    }
    EXPECT_EQ(found(), "2") << moved;
    CheckpointDirectory again(path_, true);
    EXPECT_EQ(found(), "2") << moved;
    EXPECT_EQ(fs::exists(CheckpointDirectory::pending(path_)), moved == 0) << moved;
    again.confirm();
  }
}

// If the directory exists, there is a checkpoint to resume from.
TEST_F(Saves, MakeANewDirectoryWhenTheFirstIsWhole) {
  const std::string before = fs::path(path_).parent_path() /
                             fmt::format(".{}.fpdt_new", fs::path(path_).filename().string());
  {
    CheckpointDirectory directory(path_ + "/");
    fill(directory.begin(), "1");
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_TRUE(fs::exists(before + "/fpdt_stage/config.json"));
    EXPECT_THROW(CheckpointDirectory{path_}, InputError);
    directory.finish();
    EXPECT_EQ(found(), "1");
    EXPECT_FALSE(fs::exists(before));
    EXPECT_THROW(CheckpointDirectory{path_}, InputError);
    directory.reject();
    EXPECT_FALSE(fs::exists(path_));
  }
  // A kill left a half-written directory, or a whole one before its rename, and another run begins.
  fs::create_directories(before + "/fpdt_stage");
  write_file_atomically(before + "/fpdt_stage/config.json", "half");
  fs::create_directories(before + "/fpdt_pending");
  fill(before + "/fpdt_pending", "1");
  CheckpointDirectory directory(path_);
  EXPECT_FALSE(fs::exists(before + "/fpdt_stage"));
  EXPECT_FALSE(fs::exists(before + "/fpdt_pending"));
  fill(directory.begin(), "2");
  // A directory that appears meanwhile keeps its files.
  fs::create_directory(path_);
  write_file_atomically(file("notes"), "mine");
  EXPECT_THROW(directory.finish(), IoError);
  EXPECT_EQ(entries(), 1U);
  EXPECT_TRUE(fs::exists(before + "/fpdt_pending/config.json"));
  fs::remove_all(before);
}

TEST_F(Saves, RemoveAStageThatAKillLeft) {
  {
    CheckpointDirectory directory(path_);
    save(directory, "1");
    directory.confirm();
  }
  fs::create_directory(file("fpdt_stage"));
  write_file_atomically(file("fpdt_stage/model.safetensors"), "half");
  EXPECT_EQ(found(), "1");
  const CheckpointDirectory again(path_);
  EXPECT_FALSE(fs::exists(file("fpdt_stage")));
}

TEST_F(Saves, LeaveOtherFilesAlone) {
  CheckpointDirectory directory(path_);
  save(directory, "1");
  directory.confirm();
  fs::create_directory(file("plots"));
  write_file_atomically(file("plots/loss.svg"), "mine");
  write_file_atomically(file("tokenizer.json"), "mine");
  fs::create_symlink("elsewhere", file("link"));
  fill(directory.begin(), "2");
  // A companion is copied if there is none yet.
  write_file_atomically(file("fpdt_stage/tokenizer.json"), "ours");
  write_file_atomically(file("fpdt_stage/merges.txt"), "ours");
  directory.finish();
  directory.confirm();
  EXPECT_EQ(found(), "2");
  EXPECT_EQ(read_file(file("plots/loss.svg"), 10), "mine");
  EXPECT_EQ(read_file(file("tokenizer.json"), 10), "mine");
  EXPECT_EQ(read_file(file("merges.txt"), 10), "ours");
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_EQ(entries(), kFourFiles.size() + 4);
}

TEST_F(Saves, GoOnlyWhereNothingElseIs) {
  const auto refused = [&] {
    try {
      const CheckpointDirectory directory(path_);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  fs::create_directory(path_);
  EXPECT_EQ(refused(), "");  // empty
  for (const char* text : {"", "{}", "[1]", R"({"steps": 4})"}) {
    write_file_atomically(file("trainer.json"), text);
    EXPECT_NE(refused().find("exists and is not a checkpoint"), std::string::npos) << text;
    EXPECT_EQ(read_file(file("trainer.json"), 100), text);
  }
  fs::remove_all(path_);
  write_file_atomically(path_, "a file");
  EXPECT_NE(refused().find("exists and is not a checkpoint"), std::string::npos);
  EXPECT_EQ(read_file(path_, 10), "a file");
}

TEST_F(Saves, AreOfOneRunAtATime) {
  CheckpointDirectory directory(path_);
  EXPECT_THROW(CheckpointDirectory{path_}, InputError);
  save(directory, "1");
  directory.confirm();
  EXPECT_EQ(found(), "1");
}

// Somebody renames the directory while the run continues.
TEST_F(Saves, MakeTheDirectoryAnewWhenItWasMovedAway) {
  const std::string kept = path_ + "_kept";
  fs::remove_all(kept);
  CheckpointDirectory directory(path_);
  save(directory, "1");
  fs::rename(path_, kept);
  directory.confirm();
  EXPECT_FALSE(fs::exists(path_));
  save(directory, "2");
  directory.confirm();
  EXPECT_EQ(found(), "2");
  EXPECT_EQ(read_file(CheckpointDirectory::file(kept, "config.json"), 10), "1");
  fs::remove_all(kept);
}

// Checkpoints of any number of files follow each other. Each file holds the number of its
// checkpoint.
class SavesInShards : public Saves {
 protected:
  static TrainerFile trainer_file(std::int64_t step, std::size_t model, std::size_t states) {
    TrainerFile file;
    file.progress.step = step;
    file.model.assign(model, "");
    file.states.assign(states, "");
    return file;
  }
  static void save_files(CheckpointDirectory& directory, const TrainerFile& made) {
    const std::string stage = directory.begin();
    for (const std::string& name : files_of(made)) {
      write_file_atomically(
          fmt::format("{}/{}", stage, name),
          name == "trainer.json" ? print_trainer_file(made) : std::to_string(made.progress.step));
    }
    directory.finish();
  }
  // Whether a reader finds all files of `made`, and only of that.
  [[nodiscard]] bool finds(const TrainerFile& made) const {
    const auto found = find_trainer_file(CheckpointDirectory::file(path_, "trainer.json"));
    if (!found || found->progress.step != made.progress.step) return false;
    for (const std::string& name : files_of(*found)) {
      if (name == "trainer.json") continue;
      const std::string text = read_file(CheckpointDirectory::file(path_, name), 10);
      if (text != std::to_string(made.progress.step)) return false;
    }
    return true;
  }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }
  [[nodiscard]] static std::set<std::string> names_of(const TrainerFile& made) {
    const std::vector<std::string> files = files_of(made);
    return {files.begin(), files.end()};
  }
};

TEST_F(SavesInShards, NameTheirFiles) {
  EXPECT_EQ(names_of(trainer_file(1, 1, 2)),
            (std::set<std::string>{"trainer.json", "config.json", "model.safetensors",
                                   "fpdt_state-00001-of-00002.safetensors",
                                   "fpdt_state-00002-of-00002.safetensors",
                                   "fpdt_state.safetensors.index.json"}));
  for (const std::size_t files : {1U, 2U, 99U}) {
    for (const std::string& name : files_of(trainer_file(1, files, files))) {
      EXPECT_TRUE(is_checkpoint_file(name)) << name;
    }
  }
  for (const char* name : {"model-1-of-2.safetensors", "model-00001-of-00002.bin", "notes", "",
                           "my-00001-of-00002.safetensors", "model-0000a-of-00002.safetensors",
                           "tokenizer.json", "model-00001-of-00002.safetensors.bak"}) {
    EXPECT_FALSE(is_checkpoint_file(name)) << name;
  }
}

TEST_F(SavesInShards, LeaveNothingOfTheOneBefore) {
  CheckpointDirectory directory(path_);
  std::int64_t step = 0;
  for (const auto& [model, states] :
       {std::pair(1, 1), std::pair(2, 3), std::pair(3, 3), std::pair(1, 2), std::pair(1, 1)}) {
    const TrainerFile made =
        trainer_file(++step, static_cast<std::size_t>(model), static_cast<std::size_t>(states));
    save_files(directory, made);
    EXPECT_TRUE(finds(made));
    directory.confirm();
    EXPECT_TRUE(finds(made));
    if (step == 1) write_file_atomically(file("model-1-of-2.safetensors"), "mine");
    std::set<std::string> expected = names_of(made);
    expected.insert("model-1-of-2.safetensors");
    EXPECT_EQ(names(), expected);
  }
}

// Stops after each of the renames and removals by which one checkpoint replaces another.
TEST_F(SavesInShards, GoOnWhereAKillCutThem) {
  for (const auto& [before, after] : {std::pair(trainer_file(1, 1, 1), trainer_file(2, 2, 2)),
                                      std::pair(trainer_file(1, 3, 2), trainer_file(2, 1, 1)),
                                      std::pair(trainer_file(1, 2, 3), trainer_file(2, 3, 2))}) {
    const std::vector<std::string> moves = files_of(after);
    std::vector<std::string> removals;
    for (const std::string& name : files_of(before)) {
      if (!names_of(after).contains(name)) removals.push_back(name);
    }
    for (std::size_t done = 0; done <= moves.size() + removals.size(); ++done) {
      fs::remove_all(path_);
      {
        CheckpointDirectory directory(path_);
        save_files(directory, before);
        directory.confirm();
        save_files(directory, after);
      }
      for (std::size_t i = 0; i < done; ++i) {
        if (i < moves.size()) {
          fs::rename(fmt::format("{}/{}", CheckpointDirectory::pending(path_), moves[i]),
                     file(moves[i]));
        } else {
          fs::remove(file(removals[i - moves.size()]));
        }
      }
      EXPECT_TRUE(finds(after)) << done;
      CheckpointDirectory again(path_, true);
      EXPECT_TRUE(finds(after)) << done;
      EXPECT_EQ(again.is_pending(), done == 0) << done;
      again.confirm();
      EXPECT_EQ(names(), names_of(after)) << done;
    }
  }
}

TEST_F(SavesInShards, KeepTheEarlierOneWhenRejected) {
  const TrainerFile before = trainer_file(1, 2, 3);
  CheckpointDirectory directory(path_);
  save_files(directory, before);
  directory.confirm();
  save_files(directory, trainer_file(2, 3, 1));
  directory.reject();
  EXPECT_TRUE(finds(before));
  EXPECT_EQ(names(), names_of(before));
}

}  // namespace
}  // namespace fpdt
