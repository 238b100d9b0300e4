// The directory that --save names, and how one checkpoint in it replaces another.
//
//   DIR/*              the checkpoint: files of the names below
//   DIR/fpdt_pending/  a later checkpoint, complete, whose weights no step has proven yet
//   DIR/fpdt_stage/    a checkpoint that is being written or removed
//
// New files go into fpdt_stage, which is renamed to fpdt_pending when it is complete. If the next
// step from its weights is finite, its files are renamed into DIR, one by one. If not, they are
// removed, and DIR keeps its checkpoint. Readers look for a file in fpdt_pending first and then in
// DIR, so they find the files of one complete checkpoint no matter when a kill comes. Other names
// in DIR are the user's. A new DIR is called .DIR.fpdt_new until it holds a complete checkpoint.
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
  // Holds a lock against other runs while it lives. `resumed`: the run goes on from the newest
  // checkpoint in the directory, so its steps prove a pending one. Throws InputError when the
  // directory holds anything but a checkpoint, when another run has it, or when no step would ever
  // prove the pending checkpoint in it.
  explicit CheckpointDirectory(std::string path, bool resumed = false);
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;
  // Removes unfinished files.
  ~CheckpointDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  // Returns an empty directory for the files of a checkpoint and its companions.
  [[nodiscard]] std::string begin();
  // Call it when all files are written. Makes the checkpoint pending, and durable.
  void finish();
  // Whether a checkpoint waits for confirm or reject.
  [[nodiscard]] bool is_pending() const { return pending_; }
  // Call one of these after a step from the pending weights: confirm if it was finite, else reject.
  void confirm();
  void reject();

  // The path of the newest file of that name, whether or not it exists.
  [[nodiscard]] static std::string file(const std::string& directory, std::string_view name);
  // The path of the pending checkpoint: complete, but not proven.
  [[nodiscard]] static std::string pending(const std::string& directory);
  // Whether a directory holds all files of a checkpoint.
  [[nodiscard]] static bool is_whole(const std::string& directory);

 private:
  void enter(bool resumed);
  void require_ours() const;
  [[nodiscard]] bool is_still_here() const;
  void promote();

  std::string path_;
  std::string home_;  // path_, or its temporary name until there is a checkpoint
  FileDescriptor lock_;
  bool pending_ = false;
};

}  // namespace fpdt
