// The directory that --save names, and how one checkpoint in it takes the place of another.
//
//   DIR/*              the checkpoint: files of the names below
//   DIR/fpdt_pending/  a later one, whole, whose weights no step has proven yet
//   DIR/fpdt_stage/    one that is being written, or goes
//
// What is written goes into fpdt_stage, which is renamed to fpdt_pending when it is whole. Once a
// step from its weights is found finite, its files are renamed into DIR, one by one; if not, it is
// removed, and DIR keeps what it has. Readers look for a file in fpdt_pending first, then in DIR:
// whenever a kill comes, they find the files of one whole checkpoint. Other names in DIR are the
// user's. A new DIR is called .DIR.fpdt_new until there is a whole checkpoint in it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fpdt/io/file.h"

namespace fpdt {

inline constexpr std::array<std::string_view, 4> kCheckpointFiles{
    "config.json", "model.safetensors", "fpdt_state.safetensors", "trainer.json"};
inline constexpr std::int64_t kTrainerFileMax = 1 << 20;  // bytes of trainer.json

class CheckpointDirectory {
 public:
  // Locked against other runs as long as this lives. `resumed`: the run goes on from the newest
  // checkpoint in it, so its steps judge a pending one. InputError when it holds anything but a
  // checkpoint, another run has it, or a pending one would be left without a judge.
  explicit CheckpointDirectory(std::string path, bool resumed = false);
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;
  // Removes what was not finished.
  ~CheckpointDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  // An empty directory for the files of a checkpoint, and for others that go with it.
  [[nodiscard]] std::string begin();
  // The files are written: they are pending from now on, and safe.
  void finish();
  // Whether a checkpoint waits for confirm or reject.
  [[nodiscard]] bool is_pending() const { return pending_; }
  // A step from the pending weights was finite, or not.
  void confirm();
  void reject();

  // The path of the newest file of that name, whether or not there is one.
  [[nodiscard]] static std::string file(const std::string& directory, std::string_view name);
  // Where a checkpoint lies that is whole and not proven.
  [[nodiscard]] static std::string pending(const std::string& directory);
  // Whether all files of a checkpoint are in a directory.
  [[nodiscard]] static bool is_whole(const std::string& directory);

 private:
  void enter(bool resumed);
  void require_ours() const;
  [[nodiscard]] bool is_still_here() const;
  void promote();

  std::string path_;
  std::string home_;  // path_, or its name until there is a checkpoint
  FileDescriptor lock_;
  bool pending_ = false;
};

}  // namespace fpdt
