// The directory that --save names, and how one checkpoint in it replaces another.
//
//   DIR/*              the checkpoint: the files that trainer.json counts (trainer_file.h)
//   DIR/fpdt_pending/  a later checkpoint, complete, whose weights no step has proven yet
//   DIR/fpdt_stage/    a checkpoint that is being written or removed
//
// New files go into fpdt_stage, which is renamed to fpdt_pending when it is complete. If the next
// step from its weights is finite, its files are renamed into DIR, one by one, trainer.json first.
// Then files of the earlier checkpoint that the new one does not have are removed. If the step is
// not finite, the pending files are removed, and DIR keeps its checkpoint.
//
// Readers look for a file in fpdt_pending first and then in DIR: trainer.json, and then the files
// that it counts. So they find the files of one complete checkpoint no matter when a kill comes.
// Names that no checkpoint has are the user's. A new DIR is called .DIR.fpdt_new until it holds a
// complete checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "fpdt/io/file.h"

namespace fpdt {

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
  // Whether such a path holds a complete checkpoint. If not, its files are being moved into DIR.
  [[nodiscard]] static bool is_whole(const std::string& pending);

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
