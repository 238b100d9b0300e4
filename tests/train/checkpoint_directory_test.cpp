// The contents of the directory after each step of a save, and what a run finds there after a kill.
#include "fpdt/train/checkpoint_directory.h"

#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

namespace fs = std::filesystem;

class Saves : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + fmt::format("fpdt_saves_{}", getpid());
    fs::remove_all(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  // Writes the four files, each with `text`.
  static void fill(const std::string& directory, const std::string& text) {
    for (const std::string_view name : kCheckpointFiles) {
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
    std::string text;
    for (const std::string_view name : kCheckpointFiles) {
      const std::string file = read_file(CheckpointDirectory::file(path_, name), 100);
      if (text.empty()) text = file;
      if (file != contents(name, text)) return "mixed";
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
  EXPECT_EQ(entries(), kCheckpointFiles.size());
  save(directory, "2");
  EXPECT_EQ(read_file(file("config.json"), 10), "1");
  EXPECT_EQ(found(), "2");
  directory.confirm();
  EXPECT_EQ(read_file(file("config.json"), 10), "2");
  EXPECT_EQ(entries(), kCheckpointFiles.size());
}

TEST_F(Saves, KeepTheEarlierOneWhenRejected) {
  CheckpointDirectory directory(path_);
  save(directory, "1");
  directory.confirm();
  save(directory, "2");
  directory.reject();
  EXPECT_EQ(found(), "1");
  EXPECT_EQ(entries(), kCheckpointFiles.size());
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
  for (std::size_t moved = 0; moved <= kCheckpointFiles.size(); ++moved) {
    {
      CheckpointDirectory directory(path_);
      save(directory, "1");
      directory.confirm();
      save(directory, "2");
    }
    for (std::size_t i = 0; i < moved; ++i) {
      fs::rename(fmt::format("{}/{}", CheckpointDirectory::pending(path_), kCheckpointFiles[i]),
                 file(kCheckpointFiles[i]));
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
  EXPECT_EQ(entries(), kCheckpointFiles.size() + 4);
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

}  // namespace
}  // namespace fpdt
