// A training run on disk: a Hugging Face model directory that also holds what resuming needs.
//
//   config.json, model.safetensors   the model, for everybody
//   fpdt_state.safetensors           masters where they differ from the parameters, moments; f32
//   trainer.json                     step, cursor in the tokens, seed, what made it, its course
//
// Tensors are stored whole, so a run may resume with another number of ranks or another strategy.
// With the same schedule it gives the same bits. Every tensor has a checksum. trainer.json holds
// the checksums of the two headers and its own. Values that are not finite are neither written nor
// read. checkpoint_directory.h describes how one checkpoint replaces another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fpdt/io/hf_companions.h"
#include "fpdt/train/checkpoint_directory.h"
#include "fpdt/train/trainer.h"

namespace fpdt {

// The contents of trainer.json that describe the run.
struct Progress {
  std::int64_t step = 0;    // completed steps
  std::int64_t cursor = 0;  // of the next window of the training data
  std::uint64_t seed = 0;
  std::string schedule;  // content hash of the schedule that ran
  std::int64_t ranks = 1;
  std::string course = {};  // as print_course writes it; "": unknown
  bool operator==(const Progress&) const = default;
};

// Writes a pending checkpoint; the directory keeps its previous contents until confirm.
// `companions` come from the directory that the run started from, and never replace existing files.
// Throws NumericError when a value is not finite.
void save_checkpoint(CheckpointDirectory& directory, const Trainer& trainer,
                     const Progress& progress, const HfCompanions& companions);

// Saves without waiting for a proof, for callers that take no further step.
void save_checkpoint(const std::string& path, const Trainer& trainer, const Progress& progress);

// The step of the proven checkpoint in a directory; nothing if there is none.
std::optional<std::int64_t> saved_step(const std::string& path);

// The progress that the newest checkpoint records, pending or not.
Progress load_progress(const std::string& path);

// The files that every checkpoint of a run copies from the directory that the run started from.
HfCompanions companions_of(const std::string& path);

// Loads the newest checkpoint, pending or not. Throws InputError when it is damaged or belongs to
// another model.
Progress load_checkpoint(const std::string& path, Trainer& trainer);

// Loads the weights of a Hugging Face directory, which has no history. Throws InputError when it
// holds another model.
void load_weights(const std::string& path, Trainer& trainer);

}  // namespace fpdt
