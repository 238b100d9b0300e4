// The directory that --save names, and how one checkpoint in it takes the place of another.
//
//   DIR/*              the checkpoint: files of the names below
//   DIR/fpdt_pending/  a later one, whole, whose weights no step has proven yet
//   DIR/fpdt_stage/    one that is being written, or goes
//
// What is written goes into fpdt_stage, which is renamed to fpdt_pending when it is whole. Once a
// step from its weights is found finite, its files are renamed into DIR, one by one; if not, it
// goes, and DIR keeps what it has. A file is looked for in fpdt_pending first, then in DIR:
// wherever a kill comes, that finds the files of one whole checkpoint. Other names in DIR are the
// user's. A new DIR is .DIR.fpdt_new until there is a whole checkpoint in it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "fpdt/io/file.h"

namespace fpdt {

inline constexpr std::array<std::string_view, 4> kCheckpointFiles{
    "config.json", "model.safetensors", "fpdt_state.safetensors", "trainer.json"};

class CheckpointDirectory {
 public:
  // Locked against other runs as long as this lives. InputError when it holds anything but a
  // checkpoint, or another run has it.
  explicit CheckpointDirectory(std::string path);
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;
  // Takes away what was not finished.
  ~CheckpointDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  // An empty directory for the files of a checkpoint, and for others that go with it.
  [[nodiscard]] std::string begin();
  // The files are written: they are pending from now on, and safe.
  void finish();
  // The run goes on from the pending checkpoint that was found, so its steps judge it.
  void take_over() { judged_ = pending_; }
  // Whether confirm or reject is awaited.
  [[nodiscard]] bool is_pending() const { return judged_; }
  // A step from the pending weights was finite, or not.
  void confirm();
  void reject();

  // Where the newest file of that name is, be it there or not.
  [[nodiscard]] static std::string file(const std::string& directory, std::string_view name);
  // The directory of a checkpoint that is whole and not proven.
  [[nodiscard]] static std::string pending(const std::string& directory);
  // Whether all files of a checkpoint are in a directory.
  [[nodiscard]] static bool is_whole(const std::string& directory);

 private:
  void enter();
  void require_ours() const;
  [[nodiscard]] bool is_still_here() const;
  void promote();

  std::string path_;
  std::string home_;  // path_, or what it is until there is a checkpoint
  FileDescriptor lock_;
  bool pending_ = false;  // there is one
  bool judged_ = false;   // by the steps of this run
};

}  // namespace fpdt
