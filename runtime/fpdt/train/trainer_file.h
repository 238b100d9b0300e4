// trainer.json: how far the run of a checkpoint was, and of which files the checkpoint consists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fpdt {

inline constexpr std::int64_t kTrainerFileMax = 1 << 20;  // bytes

// The files of weights are called as transformers calls them, those of states after a stem of their
// own (io/safetensors_writer.h).
inline constexpr std::string_view kModelStem = "model";
inline constexpr std::string_view kStatesStem = "fpdt_state";

// The run when the checkpoint was made.
struct Progress {
  std::int64_t step = 0;    // completed steps
  std::int64_t cursor = 0;  // of the next window of the training data
  std::uint64_t seed = 0;
  std::string schedule;  // content hash of the schedule that ran
  std::int64_t ranks = 1;
  std::string course = {};  // as print_course writes it; "": unknown
  bool operator==(const Progress&) const = default;
};

struct TrainerFile {
  Progress progress;
  // The checksum of each file's header, which holds the checksums of its tensors; "": unknown.
  std::vector<std::string> model{""}, states{""};
};

// Format 2, or 3 if weights or states are in several files.
std::string print_trainer_file(const TrainerFile& file);

// Reads formats 1 (without checksums) to 3. Throws InputError; `file_name` is for messages.
TrainerFile parse_trainer_file(const std::string& text, const std::string& file_name);

// The contents of a trainer.json; nothing if there is none, or if it is damaged or not ours.
std::optional<TrainerFile> find_trainer_file(const std::string& path);

// The names of all files of the checkpoint, trainer.json first.
std::vector<std::string> files_of(const TrainerFile& file);

// The name of a state in its file: "moment1.embed.weight".
std::string stored_name(std::string_view kind, std::string_view tensor);

// Whether a checkpoint may have a file of that name.
bool is_checkpoint_file(std::string_view name);

}  // namespace fpdt
